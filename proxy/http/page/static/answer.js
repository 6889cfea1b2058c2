// One answer as it arrives: which text was delivered, where each decision belongs in it, and when. No DOM.
//
// A decision comes just before the text that follows from it, with the offset of the affected text as its hook
// was shown it. `Block` has `Places` turn that offset into a position in the delivered text, and gives the text
// and the marks out in order.

import { Block } from "./block.js";

// Records that have their tokens. Later ones have their text alone.
const MAX_WITH_TOKENS = 20000;

// A hold that was released untouched is shown in the text if it took this many seconds. Guards hold a few
// characters of almost every piece.
const LONG_HOLD = 0.2;

// Of a tool call of which nothing was released, these withhold all.
const WITHHOLDS = new Set(["suppress", "terminate", "error"]);

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
    this.withheldCalls = new Set();  // tool calls of which nothing arrived, by their number among all calls
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
    const block = this.#block(channel, title);
    block.isBegun = true;
    block.append(text);
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

  // A tool call's decisions come before the call does, and name its number among all calls of the model. The
  // client's numbers leave out those that were withheld.
  #channelOf({ channel, call_index: call, action, mode }) {
    if (channel !== "tool_call") return channel;
    if (call === undefined || call === null) {
      const calls = [...this.blocks.keys()].filter((key) => key.startsWith("tool_call "));
      return calls.at(-1) ?? "tool_call 0";
    }
    const withheld = `tool_call ${call} withheld`;
    if (this.withheldCalls.has(call)) return withheld;
    const key = `tool_call ${call - [...this.withheldCalls].filter((one) => one < call).length}`;
    const block = this.blocks.get(key);
    if (mode === "shadow" || !WITHHOLDS.has(action) || block?.isBegun) return key;
    this.withheldCalls.add(call);
    if (block) {
      this.blocks.delete(key);
      this.blocks.set(withheld, block);
    }
    return withheld;
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

function isShortHold({ action, num_withheld: num, held_seconds: held }) {
  return action === "hold" && !num && (held ?? 0) < LONG_HOLD;
}

function readToken({ token, logprob, top_logprobs: top }) {
  return { token, logprob, top: (top ?? []).map((one) => ({ token: one.token, logprob: one.logprob })) };
}
