// Sets the theme before the first paint. A classic script, because modules run later and the page would flash.
"use strict";
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("spill.theme");
  } catch {
    // Storage may be forbidden; the theme of the system is used then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
