// Labels and removes the runs that are chosen in the list.
(function () {
  "use strict";
  var MOST_REMOVED = 200, list = window.dbdynoRuns;
  if (!document.documentElement.hasAttribute("data-served")) return;

  function at(id) { return document.getElementById(id); }

  // Labels. Tags are added and removed one by one, so that those which others add meanwhile stay.

  var labelled = null;
  function openLabel() {
    labelled = list.chosen()[0];
    at("label-run").textContent = labelled.id;
    at("label-name").value = labelled.name;
    at("label-note").value = labelled.note;
    at("label-tags").value = "";
    at("label-present").replaceChildren.apply(at("label-present"), labelled.tags.map(function (text) {
      var label = list.node("label"), box = list.node("input");
      box.type = "checkbox";
      box.checked = true;
      box.value = text;
      label.append(box, " " + text);
      return label;
    }));
    at("label-error").hidden = true;
    at("label-dialog").showModal();
    at("label-name").focus();
  }

  function saveLabel(event) {
    event.preventDefault();
    var boxes = Array.from(at("label-present").querySelectorAll("input"));
    var body = {
      run: labelled.id, name: at("label-name").value, note: at("label-note").value,
      tags: at("label-tags").value.split(",").map(function (t) { return t.trim(); }).filter(Boolean),
      untags: boxes.filter(function (b) { return !b.checked; }).map(function (b) { return b.value; })
    };
    at("label-save").disabled = true;
    window.dbdynoAsk("/label", body).then(function () {
      at("label-dialog").close();
      list.notice("");
      return list.reload();
    }, function (error) {
      at("label-error").textContent = error.message;
      at("label-error").hidden = false;
      return list.reload();  // it may have been removed meanwhile
    }).finally(function () { at("label-save").disabled = false; });
  }

  // Removal: the server lists what would go and how large it is.

  var agreed = [];
  function openRemoval() {
    var all = list.chosen().filter(list.removable), rows = all.slice(0, MOST_REMOVED);
    window.dbdynoAsk("/sizes?" + rows.map(function (r) { return "run=" + encodeURIComponent(r.id); }).join("&"))
      .then(function (asked) {
        agreed = asked.runs.map(function (r) { return r.id; });
        at("remove-title").textContent = asked.question;
        at("remove-rows").replaceChildren.apply(at("remove-rows"), asked.runs.map(function (r) {
          var tr = list.node("tr"), th = list.node("th", r.id);
          th.scope = "row";
          tr.append(th);
          [r.name, r.peak, r.status, r.size].forEach(function (text) { tr.append(list.node("td", text)); });
          return tr;
        }));
        at("remove-agreed").textContent = "Remove " + list.runs(agreed.length);
        at("remove-agreed").disabled = !agreed.length;
        at("remove-error").textContent = MOST_REMOVED + " at a time: the others stay chosen.";
        at("remove-error").hidden = all.length <= MOST_REMOVED;
        at("remove-dialog").showModal();
        at("remove-cancel").focus();
      }, function (error) { list.notice(error.message); });
  }

  function removeAgreed() {
    at("remove-agreed").disabled = true;
    window.dbdynoAsk("/remove", { runs: agreed }).then(function (done) {
      var failed = done.runs.filter(function (r) { return r.error; });
      at("remove-dialog").close();
      var gone = done.runs.length - failed.length;
      var words = failed.map(function (r) { return r.error + (r.cure ? ". What to do: " + r.cure : ""); });
      list.notice([gone ? list.runs(gone) + " removed" : ""].concat(words).filter(Boolean).join(" \u00b7 "), !failed.length);
      at("notice").focus();  // the button that opened the dialog is gone with the choice
      return list.reload();
    }, function (error) {
      at("remove-error").textContent = error.message;
      at("remove-error").hidden = false;
    }).finally(function () { at("remove-agreed").disabled = false; });
  }

  at("label").addEventListener("click", openLabel);
  document.querySelector("#label-dialog form").addEventListener("submit", saveLabel);
  at("label-cancel").addEventListener("click", function () { at("label-dialog").close(); });
  at("remove").addEventListener("click", openRemoval);
  at("remove-agreed").addEventListener("click", removeAgreed);
  at("remove-cancel").addEventListener("click", function () { at("remove-dialog").close(); });
})();
