// Asks the server of this page.
(function () {
  "use strict";

  // Returns a promise of the JSON answer, or of null if nothing has changed; it fails with the server's own words.
  // With a body, the request is a POST.
  window.dbdynoAsk = function (address, body, headers) {
    var options = { headers: Object.assign({ Accept: "application/json" }, headers) };
    if (body) {
      options.method = "POST";
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    return fetch(address, options).catch(function () {
      throw new Error("The server of this page does not answer; what is shown is as it was.");
    }).then(function (response) {
      if (response.status === 304) return null;
      if (response.status === 401) {
        throw new Error("This browser is no longer let in: open the address that dbdyno web printed last.");
      }
      return response.json().catch(function () { return { error: "The server answered " + response.status }; })
        .then(function (value) {
          if (response.ok) return value;
          throw new Error(value.error + (value.cure ? ". What to do: " + value.cure : ""));
        });
    });
  };
})();
