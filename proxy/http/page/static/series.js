// The snapshots of the last two minutes, and what follows from them: rates and quantiles. No DOM.

const SECONDS = 120;

export class Series {
  constructor() { this.snapshots = []; }

  // `isPast`: the server remembers only the main numbers of that moment.
  add(snapshot, { isPast = false } = {}) {
    if (!isPast) this.whole ??= snapshot;
    this.snapshots.push(snapshot);
    const oldest = snapshot.time - SECONDS - 1;
    while (this.snapshots[0].time < oldest) this.snapshots.shift();
    if (this.whole?.time < oldest) this.whole = this.snapshots[0];
  }

  get latest() { return this.snapshots.at(-1); }
  get first() { return this.snapshots[0]; }

  // The sum of the values that have these labels.
  now(name, labels = {}) { return sum(this.latest, name, labels); }

  // The different values that some labels have together.
  labels(name, wanted) {
    const found = (this.latest.samples[name] ?? []).map(([labels]) => wanted.filter((one) => one in labels).map((one) => [one, labels[one]]));
    return [...new Map(found.map((pairs) => [JSON.stringify(pairs), Object.fromEntries(pairs)])).values()];
  }

  // A gauge's value in each snapshot, as points [seconds ago, value].
  gauge(name, labels = {}) {
    return this.snapshots.map((one) => [this.latest.time - one.time, sum(one, name, labels)]);
  }

  // A counter's growth a second, between each two snapshots.
  rate(name, labels = {}) {
    return this.snapshots.slice(1).map((one, i) => {
      const before = this.snapshots[i];
      return [this.latest.time - one.time, grown(before, one, name, labels) / Math.max(one.time - before.time, 0.001)];
    });
  }

  // How much a counter grew in the last two minutes.
  growth(name, labels = {}) { return grown(this.first, this.latest, name, labels); }

  // Whether a histogram has values of the last two minutes.
  isFresh(name) { return grown(this.whole, this.latest, `${name}_count`, {}) > 0; }

  // The value below which a share of a histogram's values lie: of those in the last two minutes or, if there are
  // none, of all. Null: no values.
  quantile(name, share) {
    return quantile(name, share, {}, this.isFresh(name) ? [[this.latest, 1], [this.whole, -1]] : [[this.latest, 1]]);
  }

  // As `quantile`, of all values since the server started that have these labels.
  quantileOfAll(name, share, wanted) { return quantile(name, share, wanted, [[this.latest, 1]]); }
}

// The value below which a share of a histogram's values lie, from the sums of snapshots with a sign.
function quantile(name, share, wanted, signed) {
  const buckets = new Map();
  for (const [snapshot, sign] of signed) {
    for (const [labels, value] of matching(snapshot, `${name}_bucket`, wanted)) {
      buckets.set(labels.le, (buckets.get(labels.le) ?? 0) + sign * value);
    }
  }
  const bounds = [...buckets].map(([le, count]) => [le === "+Inf" ? Infinity : Number(le), count]).sort((a, b) => a[0] - b[0]);
  const total = bounds.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  let [low, below] = [0, 0];
  for (const [high, count] of bounds) {
    if (count >= share * total) {
      if (high === Infinity) return low;
      return low + (high - low) * (count > below ? (share * total - below) / (count - below) : 1);
    }
    [low, below] = [high, count];
  }
  return low;
}

function sum(snapshot, name, wanted) {
  return matching(snapshot, name, wanted).reduce((total, [, value]) => total + value, 0);
}

function matching(snapshot, name, wanted) {
  const pairs = Object.entries(wanted);
  return (snapshot.samples[name] ?? []).filter(([labels]) => pairs.every(([label, text]) => labels[label] === text));
}

// A process that started anew counts from zero.
function grown(before, after, name, labels) {
  return Math.max(0, sum(after, name, labels) - sum(before, name, labels));
}
