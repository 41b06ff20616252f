// The button that stops: without loading the page again, so that it keeps the focus and says at once what happens.
(function () {
  "use strict";
  var form = document.getElementById("stop");
  if (!form || !document.documentElement.hasAttribute("data-served")) return;
  var button = form.querySelector("button"), note = form.querySelector(".foot"), press = form.elements.press;
  note.setAttribute("role", "status");
  note.tabIndex = -1;

  function show(answer) {
    if (answer.error) { note.textContent = answer.error + (answer.cure ? ". What to do: " + answer.cure + "." : "."); return; }
    if (answer.stops) {
      press.value = String(answer.stops + 1);
      button.textContent = answer.name;
    }
    button.disabled = answer.stops === null || !answer.more;
    note.textContent = answer.words + (answer.more ? " " + answer.note : "");
    if (button.disabled) note.focus();  // a button that is disabled loses it
    form.dispatchEvent(new CustomEvent("stopping", { detail: answer.words }));
  }

  form.addEventListener("submit", function (event) {
    event.preventDefault();
    if (form.hasAttribute("aria-busy")) return;  // it is pressed already
    form.setAttribute("aria-busy", "true");
    fetch(form.action, {
      method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "application/json" }
    }).then(function (answer) { return answer.json(); }).then(show).catch(function () {
      note.textContent = "The server does not answer: nothing was stopped.";
    }).then(function () { form.removeAttribute("aria-busy"); });
  });
})();
