// Types for a Worker that calls Tollgate through a service binding, and its small helpers.

/** The service binding: `interface Env { TOLLGATE: Tollgate }`. */
export interface Tollgate {
  /**
   * Decides about a described request, as `POST /check` does, and charges it. Throws a `TypeError` that names every mistake
   * in an invalid request, and an `Error` when nothing can be decided: neither is permission.
   */
  check(asked: CheckRequest & { response_status?: undefined }): Promise<CheckAnswer>;
  /** Reports the status of the response, when the earlier result for the request has `report`. */
  check(asked: CheckRequest & { response_status: number }): Promise<Charged>;
  /** Several requests, at most 100: results in their order, each independent. An invalid one gets a `Problem` in its place. */
  check(asked: CheckBatch): Promise<CheckAnswers>;
  /**
   * Settles the final cost of a request, in quota units, by the `id` in the result of a check with `settle: true`. A lower
   * cost refunds the difference, a higher one is charged whether or not it fits. A repeated call changes nothing, so repeat it after an
   * `Error`, which reports that a count did not respond. Throws a `TypeError` for an id that is not of this deployment, and
   * for a cost that is not a whole number from 0 to 1,000,000,000.
   */
  settle(id: string, cost: number): Promise<Settled | SettledOtherwise | SettleExpired>;
  /**
   * Confirms that a request in flight still runs, by the `id` in `in_flight` of its check or of its last confirmation; after
   * each `renew_after_ms`. A repeated call changes nothing, so repeat it after an `Error`, which reports that a count did not
   * respond. Throws a `TypeError` for an id that is not of this deployment.
   */
  renew(id: string): Promise<Renewed | InFlightExpired>;
  /** Reports that a request in flight has ended, in the same way: its places are free. */
  done(id: string): Promise<Done>;
  fetch(input: Request | string | URL, init?: RequestInit): Promise<Response>;
}

/** The argument of `check` for `request`, with all header fields or with those named in `headers`. */
export function describe(request: Request, headers?: readonly string[]): CheckRequest & { response_status?: undefined };

/** The response that the policy gives in place of yours; `undefined` when the request is allowed. */
export function refusal(answer: CheckAnswer): Response | undefined;

/** Your response with the fields that the policy adds. */
export function withFields(response: Response, answer: CheckAnswer): Response;

// From docs/openapi.json:

export interface CheckRequest {
  /** As the client sent it. */
  method: string;
  /** The path with its query. */
  path: string;
  /** The number of the client's network. */
  asn?: number;
  /** The other end of the connection, without a port. */
  client_ip?: string;
  /** Two letters. */
  country?: string;
  /** Each value is one line of text. */
  headers?: Record<string, string>;
  /** As the client sent it; it takes precedence over a host in the headers. */
  host?: string;
  /** Of the response, for a report; without it this asks for a decision. */
  response_status?: number;
  /** The final cost may differ: the response then has an id for settle. Needs the secret HASH_KEY. */
  settle?: boolean;
}

export interface CheckBatch {
  requests: CheckRequest[];
}

export interface CheckAnswer {
  decision: "allow" | "deny" | "delay";
  /** Add these to the response. */
  headers: Record<string, string>;
  /** When the request would be allowed; null when it is, or when that is not known. */
  retry_after_ms: number | null;
  rules: {
    name: string;
    result: string;
  }[];
  /** Names of the quotas that are used up. */
  violated: string[];
  /** With deny. */
  body?: string;
  /** With deny; null when there is no body. */
  content_type?: string | null;
  /** With delay: forward the request after this time. Its place is taken. */
  delay_ms?: number;
  /** No quota denies, but a count cannot be read. */
  failure?: true;
  grpc?: {
    message: string;
    status: number;
  };
  /** If settle was requested, unless with deny: valid for 10 minutes, for this deployment. Keep it from clients. */
  id?: string;
  /** Unless with deny: rules count the request until POST /check/done reports its end. */
  in_flight?: {
    /** For POST /check/renew and POST /check/done. Keep it from clients. */
    id: string;
    /** Confirm the request after this time, if it still runs: a third of the shortest max_age. */
    renew_after_ms: number;
  };
  /** Ask again with response_status once the status is known. */
  report?: "response_status";
  /** Set these on the forwarded request. */
  request_headers?: Record<string, string>;
  /** With deny: the status of the policy's response. */
  status?: number;
}

export interface Charged {
  charged: boolean;
}

export interface CheckAnswers {
  answers: Array<CheckAnswer | Charged | Problem>;
}

/** The cost is settled, now or by an earlier call. */
export interface Settled {
  /** The charge: above the cost where nothing could be given back; null where no rule with a cost counted the request. */
  charged: number | null;
  /** The reported cost. */
  cost: number;
  result: "settled";
}

/** It was settled before at another cost, which remains. */
export interface SettledOtherwise {
  /** That cost. */
  cost: number;
  result: "conflict";
}

/** It was charged more than 10 minutes ago, and stays as it is. */
export interface SettleExpired {
  result: "expired";
}

/** The request is counted for another max_age. */
export interface Renewed {
  /** Use it from now on; if this response is lost, use the earlier one. */
  id: string;
  /** Confirm the request after this time, if it still runs. */
  renew_after_ms: number;
  result: "renewed";
}

/** Nothing counts the request any more: it has ended, or was confirmed too late. Let it run, and stop confirming it. */
export interface InFlightExpired {
  result: "expired";
}

/** Nothing counts the request any more, from now or from earlier. */
export interface Done {
  result: "done";
}

/** RFC 9457. type is stable; detail and errors are for people. */
export interface Problem {
  detail: string;
  status: number;
  title: string;
  type: string;
  errors?: ProblemError[];
}

export interface ProblemError {
  detail: string;
  path: string;
}

// End of docs/openapi.json.
