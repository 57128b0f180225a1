/* A button on each block of code that copies it without prompts and without output.
   Outputs of the gallery, and text that is no code, have none. */

function withoutPrompts(text) {
  const lines = text.replace(/\n$/, "").split("\n");
  if (!lines.some((line) => line.startsWith(">>>"))) {
    return lines.join("\n");
  }
  const code = [];
  let inCode = false; // an output may contain a line with three dots
  for (const line of lines) {
    inCode = line.startsWith(">>>") || (inCode && /^\.\.\.( |$)/.test(line));
    if (inCode) {
      code.push(line.slice(4));
    }
  }
  return code.join("\n");
}

function addButtons() {
  for (const block of document.querySelectorAll("div.highlight")) {
    if (block.closest(".sphx-glr-script-out, .highlight-none, .highlight-text")) {
      continue;
    }
    const button = document.createElement("button");
    button.className = "copy-code";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const code = block.querySelector("pre").textContent;
      await navigator.clipboard.writeText(withoutPrompts(code));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
}

if (typeof document === "undefined") {
  module.exports = { withoutPrompts };
} else if (navigator.clipboard) {
  document.addEventListener("DOMContentLoaded", addButtons);
}
