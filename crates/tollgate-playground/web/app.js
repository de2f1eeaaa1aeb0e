/**
 * The page: its state, the runs that follow from it, and the lanes side by side.
 *
 * Invariant: the state is changed in one place (`#changed`), which runs what it concerns and writes
 * the address, so the address always reproduces what the page shows.
 */

import { announce, answer } from './announce.js';
import { compared } from './compared.js';
import { cursor, moveTo, onCursor } from './cursor.js';
import { CursorBar } from './cursor-bar.js';
import { debounced, fill, h, labelled } from './dom.js';
import { plural } from './format.js';
import { glossary } from './glossary.js';
import { Lane } from './lane.js';
import { write } from './permalink.js';
import { inWords } from './response.js';
import { MAX_LANES, preset } from './state.js';
import { TrafficPanel, trafficDocument } from './traffic.js';

/** @typedef {import('./state.js').State} State */

const LETTERS = 'ABCD';
/** The presets for an added lane: the first that no lane has yet. */
const NEXT = ['gcra', 'sliding-window', 'fixed-window', 'sliding-log'];

export class App {
  /** @type {Lane[]} */ lanes = [];
  /** @type {keyof typeof import('./series.js').STATES} */ #stateName = 'whole_after';
  #mode = 'simulate';
  /** @type {{file: File, options: import('./log-drop.js').LogOptions}|null} the log that the lanes show */ #log =
    null;

  #replays = 0;
  /** @type {Map<Lane, Promise<boolean>>} the outcome of each lane's last replay */ #ends = new Map();

  /**
   * @param {State} state
   * @param {{traffic: HTMLElement, lanes: HTMLElement}} places
   * @param {(isLog: boolean) => void} changed called when the page no longer shows its first state
   */
  constructor(state, places, changed) {
    this.told = changed;
    this.state = state;
    this.places = places;
    this.traffic = new TrafficPanel(places.traffic, state.traffic, {
      changed: (traffic) => this.#changed({ ...this.state, traffic }),
      kind: (kind) => this.#show(kind === 'log' ? 'log' : 'simulate'),
      log: {
        replay: (file, options) => void this.#replay(file, options),
        cancel: () => this.#cancel(),
      },
    });
    this.seed = h('input', {
      inputmode: 'numeric',
      size: 8,
      value: String(state.seed),
      autocomplete: 'off',
      'data-testid': 'seed',
    });
    this.seed.addEventListener(
      'input',
      debounced(() => this.#reseed(), 300),
    );
    this.bar = new CursorBar({
      requestAt: (index) => this.#lead().engine.ask('at', [index]).catch(() => null),
      state: (name) => this.#showState(name),
    });
    this.compared = h('div', { className: 'compared' });
    this.grid = h('div', { className: 'lanes' });
    this.add = h(
      'button',
      { type: 'button', 'data-testid': 'add-lane', onclick: () => this.#add() },
      'Add a lane',
    );
    this.foot = h('div', { className: 'foot' }, this.add, glossary());
    places.lanes.append(this.bar.element, this.compared, this.grid, this.foot);
    this.traffic.model.seed.replaceWith(labelled('Seed', this.seed));
    this.#endCursor = onCursor(() => window.setTimeout(() => this.#sayCursor(), 60));
    this.#build();
    this.#runAll();
  }

  #endCursor;
  /** A delayed input event must not change the page that is shown now. */
  #isOver = false;

  destroy() {
    this.#isOver = true;
    this.#endCursor();
    this.lanes.forEach((lane) => lane.destroy());
    this.traffic.element.remove();
    this.bar.element.remove();
    this.compared.remove();
    this.grid.remove();
    this.foot.remove();
  }

  /** The lane whose requests the cursor counts: the first that has any. */
  #lead() {
    const isDone = (/** @type {Lane} */ lane) => lane.element.dataset.state === 'done';
    return this.lanes.find(isDone) ?? this.lanes[0];
  }

  /** The link of the page as it is. @returns {Promise<string>} the text after the `#` */
  link() {
    return write(this.state);
  }

  /** @param {State} state @param {Lane} [only] the lane that changed; all when the traffic did */
  #changed(state, only) {
    if (this.#isOver) return;
    this.state = state;
    this.told(this.#mode === 'log');
    this.address();
    if (this.#mode === 'log') {
      if (only && this.#log) void this.#replay(this.#log.file, this.#log.options, [only]);
      return;
    }
    if (only) this.#run(only);
    else this.#runAll();
  }

  /** Writes the address after a pause in changes; a too large state is not written. */
  address = debounced(async () => {
    const hash = await this.link().catch(() => '');
    if (this.#isOver) return;
    history.replaceState(null, '', hash ? `#${hash}` : location.pathname);
  }, 400);

  #reseed() {
    if (this.#isOver) return;
    const seed = Number(this.seed.value.trim());
    const isGood = /^\s*\d+\s*$/.test(this.seed.value) && Number.isSafeInteger(seed);
    this.seed.setAttribute('aria-invalid', String(!isGood));
    if (isGood) this.#changed({ ...this.state, seed });
  }

  #build() {
    this.lanes.forEach((lane) => lane.destroy());
    this.lanes = this.state.lanes.map((state, i) => this.#lane(LETTERS[i], state));
    fill(
      this.grid,
      this.lanes.map((lane) => lane.element),
    );
    this.#arrange();
  }

  /** @param {string} letter @param {import('./state.js').LaneState} state */
  #lane(letter, state) {
    /** @type {Lane} */
    const lane = new Lane(letter, state, this.#stateName, {
      changed: (next) => {
        const lanes = this.lanes.map((one) => (one === lane ? next : one.state));
        this.#changed({ ...this.state, lanes }, lane);
      },
      remove: () => this.#remove(lane),
      finished: () => this.#finished(),
    });
    return lane;
  }

  #arrange() {
    this.grid.dataset.lanes = String(this.lanes.length);
    this.add.disabled = this.lanes.length >= MAX_LANES;
    this.lanes.forEach((lane) => lane.only(this.lanes.length === 1));
  }

  #add() {
    const used = this.state.lanes.map((lane) => (lane.kind === 'preset' ? lane.algorithm : ''));
    const like = this.state.lanes.find((lane) => lane.kind === 'preset');
    const name = NEXT.find((one) => !used.includes(one)) ?? 'gcra';
    const next =
      like?.kind === 'preset' ? preset(name, like.limit, like.window) : preset(name, 10, '10s');
    const letter =
      [...LETTERS].find((one) => this.lanes.every((lane) => lane.letter !== one)) ?? 'D';
    const lane = this.#lane(letter, next);
    this.lanes.push(lane);
    this.grid.append(lane.element);
    this.#arrange();
    lane.title.focus();
    this.#changed({ ...this.state, lanes: [...this.state.lanes, next] }, lane);
  }

  /** @param {Lane} lane */
  #remove(lane) {
    const at = this.lanes.indexOf(lane);
    const lanes = this.state.lanes.filter((_, i) => i !== at);
    lane.destroy();
    this.lanes.splice(at, 1);
    this.#arrange();
    this.lanes[Math.min(at, this.lanes.length - 1)].title.focus();
    answer(`Lane ${lane.letter} is removed.`);
    this.state = { ...this.state, lanes };
    this.told(this.#mode === 'log');
    this.address();
    this.#finished();
  }

  #runAll() {
    this.lanes.forEach((lane) => this.#run(lane));
  }

  /** @param {Lane} lane */
  #run(lane) {
    void lane.run(trafficDocument(this.state.traffic), this.state.seed);
  }

  /** When a lane has finished: the common extent of the plots, and the cursor. */
  #finished() {
    for (const plot of /** @type {const} */ (['requests', 'counts', 'states'])) {
      const most = Math.max(1, ...this.lanes.map((lane) => lane[plot].own));
      this.lanes.forEach((lane) => lane[plot].extend(most));
    }
    this.#compare();
    const first = this.#lead();
    this.bar.extend(first.result?.offered ?? 0);
    if (this.lanes.some((lane) => lane.element.dataset.state === 'running')) return;
    if (this.state.traffic.kind === 'live') {
      void this.#answerLive();
    } else {
      this.#point(first.span);
      announce(this.lanes.map((lane) => lane.summary()).join(' '));
    }
  }

  /** @type {number|null} cursor position set by the page, not the user */ #put = null;

  /** Keeps a cursor position set by the user; else moves it to the first denial. @param {number} span */
  #point(span) {
    const { at_ms, index } = cursor();
    if (this.#put !== null && at_ms !== this.#put && at_ms <= span) {
      moveTo(at_ms, index);
      return;
    }
    this.#put = Math.min(firstDenied(this.lanes), span);
    moveTo(this.#put);
  }

  /** The decisions of all lanes about the last click, together. */
  async #answerLive() {
    const { traffic } = this.state;
    if (traffic.kind !== 'live') return;
    if (traffic.at.length === 0) {
      this.lanes.forEach((lane) => lane.showNobody());
      return;
    }
    const last = traffic.at.length - 1;
    this.#put = traffic.at[last];
    moveTo(this.#put, last);
    await Promise.all(
      this.lanes.map((lane) => lane.point({ at_ms: traffic.at[last], index: last })),
    );
    const answers = this.lanes.flatMap(({ letter, shown }) =>
      shown ? [{ letter, words: inWords(shown), fate: shown.fate }] : [],
    );
    this.traffic.live.answer(answers);
    answer(answers.map(({ letter, words }) => `${letter} ${words}`).join(', '));
  }

  #sayCursor() {
    const first = this.#lead();
    if (!first?.shown) return;
    this.bar.show(first.shown, first.span, this.lanes.map((lane) => lane.answer()).join(', '));
  }

  /** @param {keyof typeof import('./series.js').STATES} name */
  #showState(name) {
    this.#stateName = name;
    this.lanes.forEach((lane) => lane.showState(name));
    this.#finished();
  }

  /** @param {string} mode `simulate` or `log` */
  #show(mode) {
    this.#mode = mode;
    this.#log = null;
    this.places.lanes.dataset.mode = mode;
    this.lanes.forEach((lane) => lane.setAside());
    this.#compare();
    // A log keeps only the lanes of the page's first state.
    if (mode === 'log') this.told(true);
  }

  #compare() {
    fill(this.compared, compared(this.lanes, this.#mode === 'log'));
  }

  /** Accepts files dropped anywhere on the page. @param {File[]} files at least one */
  drop(files) {
    this.traffic.choose('log');
    this.traffic.log.drop(files);
  }

  /**
   * @param {File} file
   * @param {import('./log-drop.js').LogOptions} options
   * @param {Lane[]} lanes all, or the one that changed
   */
  async #replay(file, options, lanes = this.lanes) {
    this.#log = { file, options };
    this.traffic.log.running();
    lanes.forEach((lane) => this.#ends.set(lane, lane.replay(file, options)));
    this.#replays += 1;
    const mine = this.#replays;
    const ends = await Promise.all(this.lanes.map((lane) => this.#ends.get(lane) ?? false));
    if (mine !== this.#replays) return; // a lane was changed meanwhile: that call awaits its end
    this.#compare();
    const done = ends.filter(Boolean).length;
    const said =
      done === ends.length
        ? `${file.name} is replayed.`
        : `${file.name} is replayed in ${done} of ${plural(ends.length, 'lane')}.`;
    this.traffic.log.ended(said); // a status, which is announced
  }

  #cancel() {
    this.lanes.forEach((lane) => lane.cancel());
  }
}

/** The time of the first denial in any lane, which most users look for. @param {Lane[]} lanes */
function firstDenied(lanes) {
  const at = lanes.map((lane) => lane.firstDenied()).filter((ms) => ms !== null);
  return at.length ? Math.min(...at) : 0;
}
