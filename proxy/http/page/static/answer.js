// One answer as it arrives: which text was delivered, where each decision belongs in it, and when. No DOM.
//
// A decision comes just before the text that follows from it, with the offset of the affected text as its hook
// was shown it. `Block` turns that offset into a position in the delivered text, and gives the text and the
// marks out in order.

// Records that have their tokens. Later ones have their text alone.
const MAX_WITH_TOKENS = 20000;

// A hold that was released untouched is shown in the text if it took this many seconds. Guards hold a few
// characters of almost every piece.
const LONG_HOLD = 0.2;

export class Answer {
  constructor(view, now = () => performance.now()) {
    this.view = view;
    this.now = now;
    this.started = now();
    this.firstText = null;
    this.ended = null;
    this.blocks = new Map();
    this.decisions = [];
    this.numShortHolds = 0;
    this.records = [];
    this.failures = [];  // decisions that say that a guard failed
    this.finishReason = null;
    this.stopReason = null;
    this.usage = null;
    this.requestId = null;
    this.error = null;
  }

  get seconds() {
    return ((this.ended ?? this.now()) - this.started) / 1000;
  }

  get content() {
    return this.blocks.get("content")?.text ?? "";
  }

  // Whether the server has answered, if only by an end.
  get hasAnswer() {
    return this.firstText !== null || this.finishReason !== null;
  }

  // The setting `terminate_finish_reason` has some servers say `stop` of such an end.
  get isEndedByGuard() {
    return this.finishReason === "content_filter" || this.decisions.some(({ action, mode }) => action === "terminate" && mode !== "shadow");
  }

  // Whether the model gets it with the next message.
  get isKept() {
    return Boolean(this.content) && !this.error && !this.isEndedByGuard;
  }

  // Take in the records of an answer that ended earlier, with their times. `seconds`: how long it took.
  replay({ records, seconds, usage, requestId, stopReason }) {
    this.started = 0;
    for (const record of records) {
      this.now = () => 1000 * record.at;
      if (record.kind === "text") this.#text(record.channel, record.title, record.text, record.tokens, record.call);
      else if (record.kind === "decision") this.#decide(record.decision);
      else if (record.kind === "finish") this.#finish(record.text, stopReason);
      else this.#record(record);
    }
    Object.assign(this, { usage, requestId, now: () => 1000 * seconds });
    this.end();
  }

  take({ name, value }) {
    if (name === "weir.decision") this.#decide(value);
    else if (name === "weir.held") this.#hold(value);
    else if (name === "error" || value.error) this.error = value.error ?? value;
    else this.#chunk(value);
  }

  end() {
    this.ended = this.now();
    for (const block of this.blocks.values()) block.end();
  }

  #chunk(chunk) {
    this.requestId ??= chunk.id ?? null;
    if (chunk.usage) this.usage = chunk.usage;
    for (const choice of chunk.choices ?? []) {
      if (choice.index !== 0) continue;
      const delta = choice.delta ?? {};
      const tokens = (choice.logprobs?.content ?? []).map(readToken);
      if (delta.reasoning_content) this.#text("reasoning", null, delta.reasoning_content, delta.content ? [] : tokens);
      for (const call of delta.tool_calls ?? []) {
        this.#text(`tool_call ${call.index}`, call.function?.name ?? null, call.function?.arguments ?? "", tokens, call.id);
      }
      if (delta.content) this.#text("content", null, delta.content, tokens);
      else if (tokens.length && !delta.reasoning_content && !delta.tool_calls) this.#record({ kind: "tokens", channel: "content", text: "", tokens });
      if (choice.finish_reason) {
        this.#finish(choice.finish_reason, choice.stop_reason ?? null);
      }
    }
  }

  #finish(reason, stopReason) {
    this.finishReason = reason;
    this.stopReason = stopReason;
    this.#record({ kind: "finish", channel: "", text: reason, tokens: [] });
  }

  // `title`, `call`: the name and the id of a tool call, with its first text.
  #text(channel, title, text, tokens, call = null) {
    this.firstText ??= this.now();
    this.#record({ kind: "text", channel, text, tokens, ...(title && { title, call }) });
    this.#block(channel, title).append(text);
  }

  #decide(decision) {
    if (decision.output_index) return;  // another output of the request
    this.#record({ kind: "decision", channel: decision.channel, text: "", tokens: [], decision });
    if (isShortHold(decision)) {
      this.numShortHolds += 1;
      return;
    }
    // Other guards held text when the answer was ended. It is part of that end, which has its own decision.
    if (decision.action === "hold" && decision.reason === "aborted") return;
    this.decisions.push(decision);
    if (decision.action === "error" && decision.mode !== "shadow") this.failures.push(decision);
    if (decision.action === "judged") return;  // it speaks of the whole stream
    if (decision.channel === "prompt" || decision.output_index === null) {
      if (decision.action !== "error") this.view.promptDecision(decision);
    } else this.#block(this.#channelOf(decision), decision.tool_name ?? null).decide(decision);
  }

  #hold(held) {
    if (held.output_index) return;
    this.#record({ kind: "held", channel: held.channel, text: "", tokens: [], held });
    this.#block(this.#channelOf(held), null).hold(held);
  }

  // Decisions name no index of a tool call, so they go to the latest one.
  #channelOf({ channel }) {
    if (channel !== "tool_call") return channel;
    const calls = [...this.blocks.keys()].filter((key) => key.startsWith("tool_call "));
    return calls.at(-1) ?? "tool_call 0";
  }

  #block(channel, title) {
    let block = this.blocks.get(channel);
    if (!block) {
      block = new Block(this.view.block(channel, title));
      this.blocks.set(channel, block);
    } else if (title) block.view.retitle(title);
    return block;
  }

  #record(record) {
    record.at = (this.now() - this.started) / 1000;
    if (this.records.length >= MAX_WITH_TOKENS) record.tokens = [];
    this.records.push(record);
    this.view.record(record);
  }
}

// The delivered text of one channel, and the marks that belong in it.
class Block {
  constructor(view) {
    this.view = view;
    this.pieces = [];
    this.length = 0;  // characters (code points), as the server counts them
    this.waiting = [];  // marks that belong to text that is still to come, by position
    this.edits = [];  // by hook: how far each change of text moved what came after it
    this.open = null;  // the mark that covers the text which arrives now
    this.held = new Map();  // characters, by hook
  }

  get text() {
    return this.pieces.join("");
  }

  append(text) {
    if (!text) return;
    this.pieces.push(text);
    let rest = text;
    while (rest) {
      if (this.open) {
        const [covered, after] = cut(rest, this.open.left);
        this.open.left -= count(covered);
        this.view.cover(this.open.mark, covered);
        this.length += count(covered);
        if (this.open.left <= 0) this.open = null;
        rest = after;
        continue;
      }
      const next = this.waiting[0];
      const [before, after] = next ? cut(rest, next.position - this.length) : [rest, ""];
      if (before) this.view.text(before);
      this.length += count(before);
      rest = after;
      this.#placeUpTo(this.length, Boolean(rest));
    }
  }

  decide(decision) {
    const estimate = this.#positionOf(decision);
    const position = Math.max(this.length, estimate);
    const covers = coveredBy(decision, estimate < this.length);
    if (decision.mode !== "shadow" && CHANGES.has(decision.action)) {
      this.edits.push({ hook: decision.hook, moves: covers - decision.num_withheld });
    }
    this.waiting.push({ position, decision, covers });
    this.waiting.sort((a, b) => a.position - b.position);
    this.#placeUpTo(this.length, false);
  }

  hold({ hook, num_held: num }) {
    if (num) this.held.set(hook, num);
    else this.held.delete(hook);
    // Each hook sees what the one before it released, so their held texts follow each other.
    const total = [...this.held.values()].reduce((sum, one) => sum + one, 0);
    this.view.held(total ? { num: total, hooks: [...this.held.keys()] } : null);
  }

  end() {
    this.view.held(null);
    this.open = null;
    this.#placeUpTo(Infinity, true);
  }

  // Marks at the end of the text wait if they cover text that is still to come.
  #placeUpTo(position, isMore) {
    while (!this.open && this.waiting.length && this.waiting[0].position <= position) {
      const { decision, covers } = this.waiting[0];
      if (covers && !isMore) return;
      this.waiting.shift();
      const mark = this.view.mark(decision, covers > 0);
      if (covers && position !== Infinity) this.open = { mark, left: covers };
    }
  }

  #positionOf({ hook, offset }) {
    return this.edits.reduce((sum, edit) => (edit.hook === hook ? sum + edit.moves : sum), offset);
  }
}

const CHANGES = new Set(["redact", "rewrite", "suppress"]);

// How many characters that are still to come a mark covers: those of a replacement, or those that a hook in
// shadow mode would have withheld.
function coveredBy({ action, mode, num_released: released, num_withheld: withheld }, isPast) {
  if (action !== "redact" && action !== "rewrite") return 0;
  if (mode !== "shadow") return released ?? 0;
  return isPast ? 0 : withheld;
}

function isShortHold({ action, num_withheld: num, held_seconds: held }) {
  return action === "hold" && !num && (held ?? 0) < LONG_HOLD;
}

function readToken({ token, logprob, top_logprobs: top }) {
  return { token, logprob, top: (top ?? []).map((one) => ({ token: one.token, logprob: one.logprob })) };
}

const SURROGATE = /[\ud800-\udfff]/;

export function count(text) {
  return SURROGATE.test(text) ? Array.from(text).length : text.length;
}

// The first `number` characters, and the rest.
export function cut(text, number) {
  if (number >= text.length) return [text, ""];
  if (!SURROGATE.test(text)) return [text.slice(0, number), text.slice(number)];
  const characters = Array.from(text);
  return [characters.slice(0, number).join(""), characters.slice(number).join("")];
}
