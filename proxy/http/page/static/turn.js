// One message of the visitor with its answers: one, or two side by side.

import { Answer } from "./answer.js";
import { AnswerView } from "./answer-view.js";
import { CutError, explain } from "./api.js";
import { h, replace } from "./dom.js";

export class Turn {
  // `actions`: `edit(turn)`, and those of an answer, which get the turn and the side.
  constructor(text, actions) {
    this.text = text;
    this.actions = actions;
    this.sides = [];
    this.answers = h("div", { class: "sides" });
    this.element = h("div", { class: "exchange" },
      h("article", { class: "turn user", "aria-label": "Your message" },
        h("div", { class: "said", dir: "auto" }, text),
        h("button", { type: "button", class: "quiet edit", "aria-label": "Edit this message", onclick: () => actions.edit(this) }, "Edit")),
      this.answers);
  }

  get message() { return { role: "user", content: this.text }; }

  // Make room for answers, one for each of `lanes`.
  begin(lanes) {
    this.sides = lanes.map((lane) => this.#side(lane));
    this.#show();
  }

  // `saved`: as `Side.json` has it.
  restore(saved) {
    this.sides = saved.map((one) => this.#side(one).replay(one));
    this.#show();
  }

  // The answer that the model of a lane gets as its own.
  answerOf(lane) { return (this.sides[lane] ?? this.sides[0])?.answer; }

  #side(lane) { return new Side(this, lane, this.actions); }

  #show() {
    this.answers.dataset.num = this.sides.length;
    replace(this.answers, this.sides.map(({ view }) => view.element));
  }
}

export class Side {
  // `lane`: {name, fields, system, client}.
  constructor(turn, lane, actions) {
    this.lane = lane;
    this.notice = null;
    this.view = new AnswerView(lane.name, {
      openKeys: actions.openKeys,
      again: () => actions.again(turn),
      showRaw: () => actions.showRaw(this),
      saveRecording: () => actions.saveRecording(turn, this),
      grew: actions.grew,
    });
    this.answer = new Answer(this.view);
  }

  // End the answer. `notice`: why it is not whole.
  finish(notice = null) {
    const { answer, view } = this;
    if (answer.ended === null) answer.end();
    this.notice = notice;
    if (notice) {
      answer.error ??= notice;
      view.notice(notice, notice);
    }
    view.finish(answer);
  }

  replay({ answer, notice }) {
    this.answer.replay(answer);
    this.finish(notice);
    return this;
  }

  // Without the key, and without text that was withheld.
  get json() {
    const { records, seconds, usage, requestId, stopReason, ended } = this.answer;
    const { name, fields, system } = this.lane;
    const notice = ended === null ? explain(new CutError()) : this.notice;  // the page is left while the answer comes
    return { name, fields, system, notice, answer: { records: records.map(withoutText), seconds, usage, requestId, stopReason } };
  }
}

function withoutText(record) {
  return record.decision ? { ...record, decision: { ...record.decision, withheld: undefined } } : record;
}
