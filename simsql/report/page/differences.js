"use strict";

// The words in which two texts differ.
const differences = (() => {
  // Scripts without spaces are compared character by character, all others word by word.
  const UNSPACED =
    "\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Bopo}\\p{sc=Thai}\\p{sc=Lao}\\p{sc=Khmr}\\p{sc=Mymr}\\p{sc=Tibt}\\p{sc=Yiii}";
  const TOKEN = new RegExp(`[${UNSPACED}]\\p{M}*|(?:(?![${UNSPACED}])[\\p{L}\\p{N}\\p{M}_\\u200c\\u200d])+|\\S`, "gu");
  const MOST_CHANGES = 3000; // changed tokens up to which the shortest script of edits is sought
  const MOST_STEPS = 30_000_000; // of the search; then what is left counts as changed

  // Return tokens as numbers, equal for equal ones, and where they begin and end. White space is not compared.
  function split(text, numbers) {
    const tokens = [], starts = [], ends = [];
    for (const found of text.matchAll(TOKEN)) {
      let number = numbers.get(found[0]);
      if (number === undefined) numbers.set(found[0], (number = numbers.size));
      tokens.push(number);
      starts.push(found.index);
      ends.push(found.index + found[0].length);
    }
    return { text, tokens, starts, ends };
  }

  // Return the blocks of equal tokens as [start in a, start in b, length], in order.
  function match(a, b) {
    const blocks = [];

    function add(i, j, length) {
      const last = blocks.at(-1);
      if (last && last[0] + last[2] === i && last[1] + last[2] === j) last[2] += length;
      else if (length) blocks.push([i, j, length]);
    }

    function compare(aLow, aHigh, bLow, bHigh) {
      let before = 0;
      while (aLow + before < aHigh && bLow + before < bHigh && a[aLow + before] === b[bLow + before]) before++;
      add(aLow, bLow, before);
      aLow += before;
      bLow += before;
      let after = 0;
      while (aHigh - after > aLow && bHigh - after > bLow && a[aHigh - after - 1] === b[bHigh - after - 1]) after++;
      aHigh -= after;
      bHigh -= after;
      if (aLow < aHigh && bLow < bHigh) shortest(aLow, aHigh, bLow, bHigh);
      add(aHigh, bHigh, after);
    }

    // Myers: An O(ND) difference algorithm, 1986.
    function shortest(aLow, aHigh, bLow, bHigh) {
      const n = aHigh - aLow, m = bHigh - bLow;
      const most = Math.min(n + m, MOST_CHANGES);
      const reached = new Int32Array(2 * most + 3);
      const trace = [];
      let steps = MOST_STEPS;
      for (let d = 0; d <= most && steps > 0; d++) {
        trace.push(reached.slice(most - d, most + d + 3)); // diagonals -d - 1 to d + 1
        for (let k = -d; k <= d; k += 2) {
          const at = most + 1 + k;
          let x = k === -d || (k !== d && reached[at - 1] < reached[at + 1]) ? reached[at + 1] : reached[at - 1] + 1;
          for (; x < n && x - k < m && a[aLow + x] === b[bLow + x - k]; x++) steps--;
          reached[at] = x;
          if (x >= n && x - k >= m) return back(trace, n, m, aLow, bLow);
        }
      }
    }

    function back(trace, n, m, aLow, bLow) {
      const snakes = [];
      let x = n, y = m;
      for (let d = trace.length - 1; d >= 0; d--) {
        const reached = trace[d];
        const k = x - y, at = d + 1 + k;
        const down = k === -d || (k !== d && reached[at - 1] < reached[at + 1]);
        const startX = d === 0 ? 0 : down ? reached[at + 1] : reached[at - 1];
        const startY = d === 0 ? 0 : startX - (down ? k + 1 : k - 1);
        const fromX = d === 0 ? 0 : down ? startX : startX + 1;
        if (x > fromX) snakes.push([aLow + fromX, bLow + fromX - k, x - fromX]);
        x = startX;
        y = startY;
      }
      for (const snake of snakes.reverse()) add(...snake);
    }

    compare(0, a.length, 0, b.length);
    return blocks;
  }

  // Leave out one or two equal words between changes that are twice as long: a text is read in passages.
  function join(blocks, aLength, bLength) {
    const kept = [];
    blocks.forEach((block, index) => {
      const [i, j, length] = block;
      const [beforeI, beforeJ, beforeLength] = kept.at(-1) ?? [0, 0, 0];
      const [afterI, afterJ] = blocks[index + 1] ?? [aLength, bLength];
      const before = Math.max(i - beforeI - beforeLength, j - beforeJ - beforeLength);
      const after = Math.max(afterI - i - length, afterJ - j - length);
      if (length > 2 || 2 * length > Math.min(before, after)) kept.push(block);
    });
    return kept;
  }

  // Return the parts of both texts: lists of [text, changed], as many for a as for b, alternately equal and changed.
  function compare(left, right) {
    const numbers = new Map();
    const a = split(left, numbers), b = split(right, numbers);
    const blocks = join(match(a.tokens, b.tokens), a.tokens.length, b.tokens.length);
    return [parts(a, blocks, 0), parts(b, blocks, 1)];
  }

  function parts(side, blocks, which) {
    const found = [];
    let token = 0, place = 0;
    for (const block of [...blocks, [side.tokens.length, side.tokens.length, 0]]) {
      const first = block[which];
      // White space around a change belongs to the equal text.
      const before = token ? side.ends[token - 1] : 0;
      const from = first > token ? side.starts[token] : before;
      const to = first > token ? side.ends[first - 1] : before;
      found.push([side.text.slice(place, from), false], [side.text.slice(from, to), true]);
      place = to;
      token = first + block[2];
    }
    found.push([side.text.slice(place), false]);
    return found;
  }

  return { compare };
})();
