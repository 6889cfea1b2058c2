// Where a place in the text that one hook was shown stands in the delivered text.
//
// Each hook is shown what the hook before it released. So a place goes through the changes of its own hook that
// came earlier, and then through those of every hook behind it, also the changes that are still to come.
//
// A place is {hook, place}: characters of the text that the hook of this number is shown.

export class Places {
  constructor() {
    this.hooks = [];  // by the hook's number: {moved, changes}
  }

  // The hook put `released` characters in the place of those from `start` to `end`. Its changes come in order.
  change(hook, start, end, released) {
    while (this.hooks.length <= hook) this.hooks.push({ moved: 0, changes: [] });
    this.hooks[hook].changes.push({ start, end, released });
  }

  // The place in what the hook released of a place in what it was shown.
  released(hook, place) {
    return { hook: hook + 1, place: this.#through(hook, place) };
  }

  // The place in the delivered text, as far as it is known. `isEnd`: it ends a text, so what is put in just there
  // is not part of that text.
  delivered(of, isEnd = false) {
    return this.#shown(this.hooks.length, of, isEnd);
  }

  // Whether the place is behind another one, which lies in the text of a later hook or of the same one.
  isBehind(one, other) {
    return one.hook <= other.hook && this.#shown(other.hook, one) >= other.place;
  }

  // Forget the changes of text behind this place: the engine says it anew.
  rewind(to) {
    const stay = this.hooks.map(({ changes }, hook) => changes.filter(({ start: place }) => !this.isBehind({ hook, place }, to)));
    stay.forEach((changes, hook) => { if (hook < to.hook) this.hooks[hook].changes = changes; });
  }

  // All up to here is delivered, and no place that is asked for lies before it.
  settle(length) {
    this.hooks.forEach((one, hook) => {
      let num = 0;
      for (const { start, end, released } of one.changes) {
        const after = one.moved + start + released;
        if (end === Infinity || this.delivered({ hook: hook + 1, place: after }) > length) break;
        one.moved += released - (end - start);
        num += 1;
      }
      one.changes.splice(0, num);
    });
  }

  #shown(hook, of, isEnd = false) {
    let { place } = of;
    for (let i = of.hook; i < hook; i += 1) place = this.#through(i, place, isEnd);
    return place;
  }

  #through(hook, place, isEnd = false) {
    if (hook >= this.hooks.length) return place;
    let { moved } = this.hooks[hook];
    for (const { start, end, released } of this.hooks[hook].changes) {
      if (start >= place && (isEnd || end > place)) break;
      if (end > place) return start + moved + (isEnd || end === Infinity ? 0 : released);  // the place is gone
      moved += released - (end - start);
    }
    return place + moved;
  }
}
