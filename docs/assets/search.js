// The search takes a dash before a word for "without": an option's name, --reset, is looked for as its word.
const post = Worker.prototype.postMessage;
const QUERY = 2; // the theme's message that has the words to look for
Worker.prototype.postMessage = function (message, ...others) {
  if (message?.type === QUERY && typeof message.data === "string") {
    message = { ...message, data: message.data.replace(/(^|\s)--(?=\w)/g, "$1") };
  }
  return post.call(this, message, ...others);
};
