// Light or dark, as the system has it or as the button says. It runs before the first picture, so that a dark page does not begin white.

(() => {
  const THEMES = ["auto", "light", "dark"];
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");

  function wanted() {
    const kept = localStorage.getItem("larder-theme");
    return THEMES.includes(kept) ? kept : "auto";
  }

  function paint() {
    const theme = wanted();
    document.documentElement.dataset.theme = theme === "auto" ? (wantsDark.matches ? "dark" : "light") : theme;
    const button = document.getElementById("theme");
    if (!button) return;
    button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[theme];
    button.setAttribute("aria-label", `Colours: ${theme}. Change`);
  }

  paint();
  wantsDark.addEventListener("change", paint);
  addEventListener("storage", paint);
  document.addEventListener("DOMContentLoaded", () => {
    paint();
    document.getElementById("theme")?.addEventListener("click", () => {
      localStorage.setItem("larder-theme", THEMES[(THEMES.indexOf(wanted()) + 1) % THEMES.length]);
      paint();
    });
  });
})();
