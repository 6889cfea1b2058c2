// The tool calls that wait for a person, and the buttons that decide on one. A row stays in its place, so that the
// focus does, too.

import { explain, getJson, send } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { keys } from "./session.js";
import { plural, seconds } from "./words.js";

const MOST = 50;

export class Approvals {
  constructor() {
    this.box = byId("approvals");
    this.isLoading = false;
    this.note = h("p", { class: "hint", role: "status" });
    this.count = h("p", { class: "hint" });
    this.list = h("ul", { class: "approvals" });
    this.section = h("section", { class: "board", "aria-label": "Tool calls that wait for you" },
      h("h2", {}, "Tool calls that wait for you"), this.count, this.list, this.note);
  }

  async load(signal) {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const { data, num_waiting: total } = await getJson(`admin/approvals?limit=${MOST}`, { signal });
      if (!signal.aborted) this.#draw(data, total);
    } catch (error) {
      if (!signal.aborted) this.note.textContent = explain(error).text;
    } finally {
      this.isLoading = false;
    }
  }

  clear() {
    replace(this.box);
    replace(this.list);
    this.note.textContent = "";
  }

  #draw(shown, total) {
    if (!total && !this.section.isConnected) return;
    if (!this.section.isConnected) this.box.append(this.section);
    const before = new Map([...this.list.children].map((row) => [row.dataset.id, row]));
    this.count.textContent = shown.length < total ? `${plural(total, "call")}; the ${shown.length} oldest are shown` : plural(total, "call");
    for (const call of shown) {
      const row = before.get(call.id) ?? this.list.appendChild(this.#rowOf(call));
      row.querySelector(".for").textContent = `waits for ${seconds(call.seconds)}, until ${clockOf(call.deadline)}`;
      before.delete(call.id);
    }
    for (const row of before.values()) row.remove();
  }

  #rowOf(call) {
    const { id, key, tenant, model, tool, hook, reason } = call;
    const who = tenant === "default" ? key : `${key} (${tenant})`;
    const decide = (approve, label) => h("button", {
      type: "button", class: approve ? "" : "quiet", "aria-label": `${label} ${tool} ${id}`,
      onclick: ({ currentTarget }) => this.#decide(call, approve, currentTarget.closest("li")),
    }, label);
    return h("li", { dataset: { id } },
      h("p", {}, h("strong", { dir: "auto" }, tool ?? "A tool call"), ` by ${model} for ${who}; ${hook}: ${reason}`),
      tool === undefined
        ? h("p", { class: "hint" }, "The admin key shows the call.")
        : h("pre", { tabindex: "0", dir: "auto", "aria-label": `Arguments of ${tool}` }, call.arguments),
      h("p", { class: "hint for" }),
      keys.admin ? h("p", { class: "actions" }, decide(true, "Approve"), decide(false, "Refuse")) : null);
  }

  async #decide({ id, tool, digest }, approve, row) {
    const buttons = row.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    try {
      await send(`admin/approvals/${encodeURIComponent(id)}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ approve, digest }),
      });
      this.note.textContent = `${tool} is ${approve ? "approved" : "refused"}.`;
      row.remove();
    } catch (error) {
      for (const button of buttons) button.disabled = false;
      this.note.textContent = explain(error).text;
    }
  }
}

function clockOf(moment) {
  return new Date(1000 * moment).toLocaleTimeString();
}
