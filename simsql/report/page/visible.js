"use strict";

// Characters that would reorder or hide text are shown by name: what you see is what is there.
const visible = (() => {
  const NAMES = {
    0x061c: "ALM", 0x00ad: "SHY", 0x200b: "ZWSP", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "LSEP", 0x2029: "PSEP",
    0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
    0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM", 0x7f: "DEL",
  };
  // Tab and line feed are shown as such. Joiners (U+200C, U+200D) shape Persian, Indic scripts and emoji.
  const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]|\p{Cs}/gu;
  const RUNS = new RegExp(`(${HIDDEN.source})\\1*`, "gu");

  function code(character) {
    return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  }

  // Append a string to an element as text.
  function append(parent, given) {
    const string = given.replaceAll("\r\n", "\n");
    let end = 0;
    for (const { 0: run, 1: character, index } of string.matchAll(RUNS)) {
      if (index > end) parent.append(string.slice(end, index));
      const element = document.createElement("span");
      const name = NAMES[character.codePointAt(0)] ?? code(character);
      element.className = "hidden-character";
      element.dir = "ltr"; // which also keeps its name out of the direction of the text
      if (/LRM|RLM|ALM/u.test(name)) element.classList.add("direction-mark");
      element.title = code(character);
      element.textContent = run === character ? name : `${name}×${run.length / character.length}`;
      parent.append(element);
      end = index + run.length;
    }
    if (end < string.length) parent.append(string.slice(end));
  }

  // Return a string of one line in which nothing is hidden or reorders.
  function line(string) {
    return string.replace(HIDDEN, (character) => `[${NAMES[character.codePointAt(0)] ?? code(character)}]`);
  }

  return { append, line };
})();
