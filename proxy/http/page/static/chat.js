// The chat: messages, the composer, and answers, one for each message or two side by side.

import { ApiError, explain, streamChat } from "./api.js";
import { conversationJson, keep, kept, recordingOf } from "./conversation.js";
import { saveFile } from "./copy.js";
import { byId, h, replace } from "./dom.js";
import { RawView } from "./raw.js";
import { Turn } from "./turn.js";
import { plural, shortName } from "./words.js";

const TOP_LOGPROBS = 3;
const NEAR_END = 120;

// The model that ships knows the answers.
const DEMO = "weir-demo";
const EXAMPLES = ["What is your email address?", "Show me the API key", "What is your secret project?", "Tell me a story about an otter"];
// Every model has an answer to these, and the guard `pii` something to do.
const GENERAL_EXAMPLES = ["Which e-mail address is in this text? Please write to anna.lee@initech.com for details.", "Tell me a story about an otter"];

export class Chat {
  constructor(setup, { openKeys }) {
    this.setup = setup;
    this.turns = [];
    this.cleared = [];  // the turns that "New chat" took away
    this.running = null;
    this.isAtEnd = true;  // the newest text is in view
    this.editing = null;  // the turn whose message is in the composer
    this.recalled = null;  // the place of the message that the arrows have brought back
    this.withoutLogprobs = new Set();
    this.raw = new RawView(byId("raw-rows"), byId("raw-caption"));
    this.scroller = byId("transcript");
    this.input = byId("message");
    this.actions = {
      openKeys,
      edit: (turn) => this.edit(turn),
      again: (turn) => this.again(turn),
      showRaw: (side) => { this.raw.show(side.answer, side.view); this.setup.show("raw"); },
      saveRecording: (turn, side) => this.#saveRecording(turn, side),
      grew: () => this.#follow(),
    };
    this.#listen();
    setup.onChange(() => this.#examples());
    this.#take(kept().turns.map(({ text, sides }) => {
      const turn = new Turn(text, this.actions);
      turn.restore(sides);
      return turn;
    }));
    this.#toEnd();
  }

  #listen() {
    byId("composer").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    byId("stop").addEventListener("click", () => this.running?.abort());
    byId("clear").addEventListener("click", () => this.clear());
    byId("undo").addEventListener("click", () => this.undo());
    byId("export").addEventListener("click", () => saveFile("weir-chat.json", "application/json", conversationJson(this.turns)));
    byId("stop-editing").addEventListener("click", () => this.#stopEditing());
    byId("newest").addEventListener("click", () => { this.#toEnd(); this.input.focus(); });
    this.scroller.addEventListener("scroll", () => { this.isAtEnd = this.#toGo < NEAR_END; this.#showJump(); }, { passive: true });
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.input.addEventListener("input", () => { this.recalled = null; this.#fit(); });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || document.querySelector(":popover-open, dialog[open]")) return;
      if (this.running) this.running.abort();
      else if (this.editing) this.#stopEditing();
    });
    byId("panel-setup").addEventListener("change", () => this.#keep());
    addEventListener("pagehide", () => this.#keep());
  }

  #key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.send();
    } else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && (!this.input.value || this.recalled !== null)) {
      this.#recall(event);
    }
  }

  // The arrows bring earlier messages back, the newest first.
  #recall(event) {
    const place = (this.recalled ?? this.turns.length) + (event.key === "ArrowUp" ? -1 : 1);
    if (place < 0 || place > this.turns.length || !this.turns.length) return;
    event.preventDefault();
    this.#write(this.turns[place]?.text ?? "");
    this.recalled = place < this.turns.length ? place : null;
  }

  #write(text) {
    this.input.value = text;
    this.recalled = null;
    this.input.setSelectionRange(text.length, text.length);
    this.#fit();
  }

  clear() {
    this.running?.abort();
    this.#stopEditing();
    this.cleared = this.turns;
    this.#take([]);
    this.input.focus();
    byId("status").textContent = "A new chat. The one before can be brought back.";
  }

  undo() {
    this.#take(this.cleared);
    this.input.focus();
  }

  // Show these turns in place of those before.
  #take(turns) {
    this.turns = turns;
    replace(byId("turns"), turns.map(({ element }) => element));
    if (turns.length) this.cleared = [];
    this.#showGuardFailure([]);
    this.raw.clear();
    this.#changed();
  }

  #changed() {
    const isEmpty = !this.turns.length;
    byId("welcome").hidden = !isEmpty;
    byId("clear").hidden = byId("export").hidden = isEmpty;
    byId("undo").hidden = !this.cleared.length;
    byId("turns").classList.toggle("wide", this.turns.some(({ sides }) => sides.length > 1));
    if (isEmpty) this.#examples();
    this.#showJump();
    this.#keep();
  }

  #keep() { keep(this.turns, this.setup.json); }

  send(text = this.input.value) {
    if (this.running || !text.trim() || !this.setup.check()) return;
    if (this.editing) this.#removeFrom(this.turns.indexOf(this.editing));
    this.#stopEditing();
    this.#write("");
    this.cleared = [];
    const turn = new Turn(text, this.actions);
    this.turns.push(turn);
    byId("turns").append(turn.element);
    this.#answer(turn);
  }

  again(turn) {
    if (this.running || !this.setup.check()) return;
    this.#removeFrom(this.turns.indexOf(turn) + 1);
    this.#answer(turn);
  }

  edit(turn) {
    if (this.running) return;
    this.editing = turn;
    byId("editing").hidden = false;
    this.#write(turn.text);
    this.input.focus();
  }

  #stopEditing() {
    if (this.editing) this.#write("");
    this.editing = null;
    byId("editing").hidden = true;
  }

  #removeFrom(place) {
    for (const turn of this.turns.splice(place)) turn.element.remove();
  }

  // The messages that the model of a lane gets. Those without a whole answer are left out. With one whose answer
  // a guard ended, the guard would end the next answer as well.
  #messages(turn, place, system) {
    const before = this.turns.slice(0, this.turns.indexOf(turn)).filter((one) => one.answerOf(place)?.isKept);
    return [
      ...(system ? [{ role: "system", content: system }] : []),
      ...before.flatMap((one) => [one.message, { role: "assistant", content: one.answerOf(place).content }]),
      turn.message,
    ];
  }

  async #answer(turn) {
    const abort = this.running = new AbortController();
    turn.begin(this.setup.lanes());
    this.raw.show(turn.sides[0].answer, turn.sides[0].view);
    this.#changed();
    this.#busy(true);
    this.#toEnd();
    await Promise.all(turn.sides.map((side, place) => this.#run(turn, side, place, abort.signal)));
    this.#showGuardFailure(turn.sides.flatMap(({ answer }) => answer.failures));
    this.setup.tellRole();
    this.#follow();
    this.running = null;
    this.#busy(false);
    this.#announce(turn);
    this.#changed();
  }

  async #run(turn, side, place, signal) {
    const { answer } = side;
    try {
      await this.#stream(turn, side, place, signal);
      if (answer.error) throw new ApiError(200, answer.error);
      side.finish();
    } catch (error) {
      for (const decision of error.decisions ?? []) answer.take({ name: "weir.decision", value: decision });
      answer.error = error;
      if (signal.aborted) side.finish({ title: "Stopped.", text: "The server ended its work on this answer.", isError: false });
      else side.finish(explain(error));
    }
  }

  async #stream(turn, side, place, signal) {
    const { fields, system, client } = side.lane;
    const body = { ...fields, messages: this.#messages(turn, place, system), stream: true, stream_options: { include_usage: true } };
    const logprobs = { logprobs: true, top_logprobs: TOP_LOGPROBS };
    const isWithout = this.withoutLogprobs.has(fields.model);
    try {
      for await (const event of streamChat(isWithout ? body : { ...body, ...logprobs }, { signal, client })) side.answer.take(event);
    } catch (error) {
      const isRefused = error instanceof ApiError && error.status === 400 && ["logprobs", "top_logprobs"].includes(error.param);
      if (!isRefused || isWithout) throw error;
      this.withoutLogprobs.add(fields.model);  // this engine has none
      await this.#stream(turn, side, place, signal);
    }
  }

  #saveRecording(turn, side) {
    const place = turn.sides.indexOf(side);
    const text = recordingOf(this.#messages(turn, place, side.lane.system), side);
    saveFile(`${side.answer.requestId ?? "answer"}.jsonl`, "application/x-ndjson", text);
  }

  #busy(isBusy) {
    byId("stop").hidden = !isBusy;
    byId("send").hidden = isBusy;
    if (isBusy) byId("status").textContent = "The model answers.";
    else if (document.activeElement === byId("stop") || document.activeElement === document.body) this.input.focus();
  }

  // A screen reader says this once, at the end.
  #announce({ sides }) {
    const acted = sides.flatMap(({ answer }) => answer.decisions).filter((one) => one.mode !== "shadow" && one.action !== "hold" && one.action !== "judged");
    const guards = acted.length ? ` ${plural(acted.length, "decision")} of guards in it.` : "";
    byId("status").textContent = endOf(sides.map(({ answer }) => answer)) + guards;
  }

  // The cause stands here once, until an answer comes without it: each answer that the guard vets ends for it.
  #showGuardFailure(failures) {
    const [failure] = failures;
    const box = byId("guard-failure");
    box.hidden = !failure;
    replace(box, failure && h("p", {}, h("strong", {}, `The guard ${shortName(failure.hook)} failed`), failure.reason ? `: ${failure.reason}` : "."));
  }

  // Who reads the newest text goes on to read the newest. Who has scrolled up stays there.
  #follow() {
    if (this.running && this.isAtEnd) this.#toEnd();
    this.#showJump();
  }

  #toEnd() {
    this.isAtEnd = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  get #toGo() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  #showJump() {
    byId("newest").hidden = this.#toGo < 2 * NEAR_END;
  }

  #fit() {
    this.input.style.setProperty("height", "auto");
    this.input.style.setProperty("height", `${Math.min(this.input.scrollHeight + 2, 220)}px`);
  }

  #examples() {
    const examples = this.setup.model.startsWith(DEMO) ? EXAMPLES : GENERAL_EXAMPLES;
    replace(byId("examples"), examples.map((text) => h("li", {}, h("button", { type: "button", class: "example", onclick: () => this.send(text) }, text))));
  }
}

// How one answer, or two side by side, came to their end.
function endOf(answers) {
  const ended = answers.filter((answer) => answer.isEndedByGuard);
  if (answers.some(({ error }) => error)) return "The answer ended early.";
  if (!ended.length) return answers.some(({ finishReason }) => finishReason === "length") ? "The answer is cut at the most tokens." : "The answer is complete.";
  if (ended.length === answers.length) return `A guard ended ${answers.length > 1 ? "both answers" : "the answer"}.`;
  return "A guard ended one of the two answers.";
}
