// Signing in and out, the same on every page. A page says what to do once it knows whose token it is, and when it is gone.

import {Refused, ask, token} from "./api.js";
import {$} from "./format.js";

const AGAIN_MS = 2000;
const REVOKED = "The token is not valid, or was revoked.";

const show = (view) => {
  document.body.dataset.view = view;
  $("sign-in").hidden = view !== "sign-in";
  $("board").hidden = view !== "board";
  $("session").hidden = view !== "board";
};

// `entered(me)` may be called again when the server has been away; `failed(error)` for what is not about the token.
export const startSession = ({entered, left, failed}) => {
  let leaving = Promise.resolve();

  const enter = async (text, arrive = () => {}) => {
    await leaving; // or the cookie of whoever comes next would go with the last one's
    token.set(text);
    const me = await ask("/api/v1/who");
    if (token.get() !== text) return; // signed out, or in as somebody else, meanwhile
    show("board");
    $("token").value = $("token-error").textContent = $("alert").textContent = "";
    $("who").textContent = `${me.name}, ${me.role}`;
    arrive(); // before what takes long is loaded: somebody may already be at a control then
    await entered(me);
  };

  const signOut = (why = "") => {
    // Reports are opened with a cookie; it goes with the token.
    if (token.get() && !why) leaving = ask("/api/v1/logout", {}).catch(() => {});
    token.drop();
    show("sign-in");
    $("token-error").textContent = why;
    $("summary").textContent = "Signed out.";
    left();
    $("token").focus();
  };

  $("token-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = $("token").value.trim();
    if (!/^[\x21-\x7e]+$/.test(text)) {
      $("token-error").textContent = "A token has no spaces or letters beyond ASCII.";
      return;
    }
    try {
      await enter(text, () => {
        $("main").focus({preventScroll: true});
        scrollTo(0, 0);
      });
    } catch (error) {
      if (token.get() !== text) return; // about a token that was tried before this one
      token.drop();
      show("sign-in");
      $("token-error").textContent = error instanceof Refused
        ? (error.status === 401 ? REVOKED : `Not now: ${error.message}.`)
        : "The server does not answer. Is smartmig serve running?";
    }
  });
  $("leave").addEventListener("click", () => signOut());

  // The server may be away for a moment: the token is kept, and tried one time after another until somebody signs out.
  const enterAgain = async (kept) => {
    while (token.get() === kept) {
      try {
        await enter(kept);
        return;
      } catch (error) {
        if (token.get() !== kept) return;
        if (error instanceof Refused && error.status === 401) {
          signOut(REVOKED);
          return;
        }
        show("board");
        failed(error);
      }
      await new Promise((go) => setTimeout(go, AGAIN_MS));
    }
  };

  const kept = token.get();
  if (kept) enterAgain(kept);
  else {
    show("sign-in");
    $("summary").textContent = "Signed out.";
  }
  return {signOut: () => signOut(REVOKED)};
};
