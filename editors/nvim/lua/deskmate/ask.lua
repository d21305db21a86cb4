-- Questions to the person. The server's request waits in a coroutine, which a key press resumes; the editor is never
-- blocked. A question is known by its id, whether it came as a request or as an update.

local client_ = require("deskmate.client")
local config = require("deskmate.config")

local M = {}

---@class (exact) deskmate.OpenAsk
---@field ask deskmate.Ask
---@field shown_at integer Milliseconds.
---@field thread? thread The server's request, waiting for the answer.
---@field sending? boolean The person has answered.

---@type deskmate.OpenAsk[] Oldest first.
local open = {}
---@type table<string, boolean> Settled ones: a request may come after its question was settled elsewhere.
local settled = {}

---@param id string
---@return integer? index
---@return deskmate.OpenAsk?
local function find(id)
  for index, entry in ipairs(open) do
    if entry.ask.id == id then
      return index, entry
    end
  end
end

---The chat that shows a question: its session's own, else the one of the folder.
---@param ask deskmate.Ask
---@return deskmate.Chat
local function chat_of(ask)
  return require("deskmate.chat").of_session(ask.sessionId)
end

---Shows a question in the chat. One that is on show already stays as it is.
---@param ask deskmate.Ask
---@return deskmate.OpenAsk
function M.show(ask)
  local _, known = find(ask.id)
  if known then
    return known
  end
  local entry = { ask = ask, shown_at = vim.uv.now() }
  table.insert(open, entry)
  chat_of(ask):show_ask(ask)
  return entry
end

---Handles `deskmate/ask`: shows the question and waits.
---@param _ any
---@param params deskmate.AskPerson
---@return deskmate.AskAnswer? answer
---@return lsp.ResponseError? refused
function M.request(_, params)
  if settled[params.ask.id] then
    return nil, vim.lsp.rpc.rpc_response_error(vim.lsp.protocol.ErrorCodes.RequestCancelled)
  end
  M.show(params.ask).thread = coroutine.running()
  return coroutine.yield()
end

---Takes a question away, whoever settled it.
---@param id string
---@param answer? deskmate.AskAnswer For the server's request; without it the request ends as cancelled.
local function close(id, answer)
  settled[id] = true
  local index, entry = find(id)
  if not entry then
    return
  end
  table.remove(open, index)
  chat_of(entry.ask):hide_ask(id)
  if entry.thread then
    local cancelled = vim.lsp.rpc.rpc_response_error(vim.lsp.protocol.ErrorCodes.RequestCancelled)
    local ok, problem = coroutine.resume(entry.thread, answer, not answer and cancelled or nil)
    if not ok then
      vim.notify("Deskmate: " .. tostring(problem), vim.log.levels.ERROR)
    end
  end
end

---Answers a question as the person decided.
---@param id string
---@param reply deskmate.Reply
---@param remark? string Told to the model.
function M.answer(id, reply, remark)
  local _, entry = find(id)
  if not entry or entry.sending then
    return
  end
  local answer = { reply = reply, message = remark and remark:find("%S") and remark or nil }
  if entry.thread then
    return close(id, answer)
  end
  -- It came as an update only: another editor was asked, and this one may answer all the same.
  local session = require("deskmate.session").find(entry.ask.sessionId)
  if not session then
    return
  end
  entry.sending = true
  session:ensure(function(client, failure)
    if not client then
      entry.sending = nil
      return client_.notify(failure)
    end
    local params = { askId = id, reply = reply, message = answer.message }
    client_.request(client, "deskmate/ask/reply", params, function(_, refused)
      entry.sending = nil
      if refused then
        return client_.notify(refused)
      end
      close(id)
    end)
  end)
end

---@param reply deskmate.Reply
---@param remark? string
function M.answer_oldest(reply, remark)
  local replies = M.replies()
  if not vim.list_contains(replies, reply) then
    local words = ("Deskmate: %q is no answer here; say one of: %s"):format(reply, table.concat(replies, ", "))
    return vim.notify(words, vim.log.levels.ERROR)
  end
  if not open[1] then
    return vim.notify("Deskmate: nothing is asked")
  end
  M.answer(open[1].ask.id, reply, remark)
end

---Answers the question by a key, unless it appeared only just now: then the key was meant for something else.
---@param id string
---@param reply deskmate.Reply|"remark"
function M.key(id, reply)
  local _, entry = find(id)
  if not entry then
    return
  end
  if vim.uv.now() - entry.shown_at < config.get().ask_grace_ms then
    return vim.notify("Deskmate: this question is new; press the key again to answer it")
  end
  if reply ~= "remark" and not vim.list_contains(M.offers(entry.ask), reply) then
    return vim.notify("Deskmate: this is not offered here; the line below the question has the keys")
  end
  if reply ~= "remark" then
    return M.answer(id, reply)
  end
  vim.ui.input({ prompt = "Why not? " }, function(remark)
    if remark then
      M.answer(id, "reject", remark)
    end
  end)
end

---The answers that make a difference. Without patterns only *once* allows; *always* is the same as *session* unless
---the server would keep one of them.
---@param ask deskmate.Ask
---@return deskmate.Reply[]
function M.offers(ask)
  if ask.kind == "trust" then
    return { "always", "reject" }
  end
  local offers, stored = { "once" }, false
  for _, always in ipairs(ask.always or {}) do
    offers[2] = "session"
    stored = stored or always.stored
  end
  if stored then
    table.insert(offers, "always")
  end
  table.insert(offers, "reject")
  return offers
end

---The answers to the oldest open question; without one, those that there usually are.
---@return deskmate.Reply[]
function M.replies()
  return open[1] and M.offers(open[1].ask) or { "once", "session", "reject" }
end

---The server says that a question is settled.
---@param id string
function M.withdraw(id)
  close(id)
end

---Handles `$/cancelRequest`. Neovim doesn't tell a handler the id of its request, so the server is asked which
---questions are still open.
---@param _ any
---@param _params any
---@param ctx lsp.HandlerContext
function M.cancelled(_, _params, ctx)
  local client = vim.lsp.get_client_by_id(ctx.client_id)
  if not client or #open == 0 then
    return
  end
  local before = vim.list_slice(open)
  client_.request(client, "deskmate/ask/list", {}, function(result)
    if not result then
      return
    end
    local still = {}
    for _, ask in ipairs(result.asks) do
      still[ask.id] = true
    end
    for _, entry in ipairs(before) do
      local session = require("deskmate.session").find(entry.ask.sessionId)
      local ours = not session or session:is_with(ctx.client_id)
      if ours and not still[entry.ask.id] then
        close(entry.ask.id)
      end
    end
  end)
end

---The ids of the open questions, oldest first.
---@return string[]
function M.list()
  return vim.tbl_map(function(entry)
    return entry.ask.id
  end, open)
end

client_.on_exit(function(client_id)
  -- A server that is gone waits for no answer.
  for _, entry in ipairs(vim.list_slice(open)) do
    local session = require("deskmate.session").find(entry.ask.sessionId)
    if not session or session:is_with(client_id) then
      entry.thread = nil
      close(entry.ask.id)
    end
  end
end)

return M
