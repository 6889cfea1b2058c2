// The filters of a view: in its form, in the address behind the view's name, and in what the server is asked.

const ALL = "all";

// Fill the form in as the address says. What the address does not name has its default.
export function filterBy(form, query) {
  form.reset();
  for (const [name, value] of query) {
    const box = form.elements.namedItem(name);
    if (box) box.value = value;
  }
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
    if (name === "last") query.set("since", (Date.now() / 1000 - Number(value)).toFixed(0));
    else query.set(name, value.trim?.() ?? value);
  }
  return query;
}
