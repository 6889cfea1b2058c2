// The filters of a view: in its form, in the address behind the view's name, and in what the server is asked.

import { h } from "./dom.js";

const ALL = "all";

// Fill the form in as the address says. What the address does not name has its default. A value that a list does
// not have is added to the list, and the server says what is wrong with it. Returns the filters that the form has
// no place for: the server is asked for them, too.
export function filterBy(form, query) {
  for (const added of form.querySelectorAll("option[data-added]")) added.remove();
  form.reset();
  const others = {};
  for (const [name, value] of query) {
    const box = form.elements.namedItem(name);
    if (!box) others[name] = value;
    else if (box.tagName === "SELECT" && ![...box.options].some((one) => one.value === value)) {
      box.append(h("option", { value, dataset: { added: "" } }, value));
      box.value = value;
    } else box.value = value;
  }
  return others;
}

// Write the form's values that are not the defaults into the address, by which the view is then shown. Returns
// whether the address has changed.
export function toAddress(view, form) {
  const query = new URLSearchParams();
  for (const box of form.elements) if (box.name && box.value !== defaultOf(box)) query.set(box.name, box.value);
  const before = location.hash;
  location.hash = query.size ? `${view}?${query}` : view;
  return location.hash !== before;
}

function defaultOf(box) {
  return box.tagName === "SELECT" ? ([...box.options].find((one) => one.defaultSelected) ?? box.options[0]).value : box.defaultValue;
}

// The server's query.
export function queryOf(form, more = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of [...new FormData(form), ...Object.entries(more)]) {
    if (value === null || value === "" || (name === "last" && value === ALL)) continue;
    if (name === "last") query.set("since", sinceOf(value));
    else query.set(name, value.trim?.() ?? value);
  }
  return query;
}

// A time that is no number is the server's to refuse.
function sinceOf(last) {
  const seconds = Number(last);
  return Number.isFinite(seconds) ? (Date.now() / 1000 - seconds).toFixed(0) : last;
}
