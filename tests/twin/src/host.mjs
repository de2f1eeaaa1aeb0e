export const readBody = (request) => request.arrayBuffer();

export const ask = (env, what, name, request) => env.LIMITER.getByName(name)[what](request);
