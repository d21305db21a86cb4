-- One conversation: what the server told of it so far, and the requests that concern it. Knows nothing of windows;
-- a view (the transcript) is told what changed.

local ask = require("deskmate.ask")
local client_ = require("deskmate.client")
local files = require("deskmate.files")

---@class (exact) deskmate.View What a session tells.
---@field message fun(self, message: deskmate.Message) A message is new or its own fields changed.
---@field part fun(self, message: deskmate.Message, part: deskmate.Part) A part is new or changed.
---@field text fun(self, part: deskmate.Part, text: string) Text came at the end of a part that streams.
---@field notice fun(self, id: string, lines: deskmate.Line[]) Something to tell that is no part of the conversation.
---@field state fun(self) Status, queue or title changed.

---@class deskmate.Session
---@field root string The workspace folder.
---@field id string
---@field info? deskmate.Session The server's own words about it.
---@field status string
---@field retry? string Why the last attempt failed, while it is retried.
---@field queue deskmate.Queue
---@field usage? deskmate.Usage
---@field messages table<string, deskmate.Message>
---@field parts table<string, deskmate.Part>
---@field view deskmate.View
---@field package lengths table<string, integer> Code points of each streamed field, by part id and field.
---@field package client? vim.lsp.Client
---@field package token? string
---@field package opening? fun(client?: vim.lsp.Client, failure?: deskmate.Failure)[]
local Session = {}
Session.__index = Session

local M = {}

---@type table<string, deskmate.Session> The followed ones.
local followed = {}

---@param root string
---@param id? string An existing session.
---@param view deskmate.View
---@return deskmate.Session
function M.new(root, id, view)
  return setmetatable({
    root = root,
    id = id or client_.id("ses_"),
    status = "idle",
    queue = { held = false, prompts = {} },
    messages = {},
    parts = {},
    lengths = {},
    view = view,
  }, Session)
end

---The session with this id, if it is on show.
---@param id? string
---@return deskmate.Session?
function M.find(id)
  return id and followed[id] or nil
end

---Gives the client once the session exists there and its updates come. Nothing is asked of the server before a
---person does something; after a crash of the server this brings the session back.
---@param done fun(client?: vim.lsp.Client, failure?: deskmate.Failure)
function Session:ensure(done)
  if self.client and not self.client:is_stopped() then
    return done(self.client)
  end
  if self.opening then
    return table.insert(self.opening, done)
  end
  self.opening = { done }
  local function finish(client, failure)
    local waiting = self.opening or {}
    self.opening, self.client = nil, client
    for _, each in ipairs(waiting) do
      each(client, failure)
    end
  end
  client_.start(self.root, function(client, failure)
    if not client then
      return finish(nil, failure)
    end
    local params = { id = self.id, folder = vim.uri_from_fname(self.root) }
    client_.request(client, "deskmate/session/create", params, function(info, refused)
      if not info then
        return finish(nil, refused)
      end
      self.info = info
      self:subscribe(client, finish)
    end)
  end)
end

---@package
---@param client vim.lsp.Client
---@param done fun(client?: vim.lsp.Client, failure?: deskmate.Failure)
function Session:subscribe(client, done)
  self.token = client_.follow(client, function(update)
    self:apply(update)
  end)
  followed[self.id] = self
  -- From the beginning: each message and part comes once, as it stands, and then live.
  local params = { sessionId = self.id, fromSeq = 0, partialResultToken = self.token }
  client_.request(client, "deskmate/session/subscribe", params, function(_, failure)
    if failure then
      return done(nil, failure)
    end
    client_.request(client, "deskmate/session/get", { sessionId = self.id }, function(details)
      if details then
        self:set_details(details)
      end
    end)
    done(client)
  end)
end

---@package
---@param details deskmate.SessionDetails
function Session:set_details(details)
  self.info = details.session
  self.queue = details.queue or self.queue
  self.usage = details.usage
  self.status = type(details.status) == "table" and details.status.status or details.status or self.status
  for _, open in ipairs(details.asks or {}) do
    ask.show(open)
  end
  self.view:state()
end

---Stops following; what runs goes on.
function Session:leave()
  followed[self.id] = nil
  if self.client and self.token then
    client_.unfollow(self.client.id, self.token)
  end
  self.client, self.token = nil, nil
end

---Sends a prompt. While a turn runs it is queued by the server.
---@param parts deskmate.PartInput[]
---@param done fun(result?: deskmate.TurnResult, failure?: deskmate.Failure)
function Session:prompt(parts, done)
  self:ensure(function(client, failure)
    if not client then
      return done(nil, failure)
    end
    local params = { sessionId = self.id, messageId = client_.id("msg_"), parts = parts }
    client_.request(client, "deskmate/session/prompt", params, done)
  end)
end

---Interrupts the running turn, if there is one.
function Session:interrupt()
  if not self.client then
    return vim.notify("Deskmate: nothing is running here")
  end
  client_.request(self.client, "deskmate/session/interrupt", { sessionId = self.id }, function(result, failure)
    if failure then
      client_.notify(failure)
    elseif not result.interrupted then
      vim.notify("Deskmate: nothing was running")
    elseif result.left and #result.left > 0 then
      vim.notify("Deskmate: still running: " .. table.concat(result.left, ", "), vim.log.levels.WARN)
    end
  end)
end

---Goes on with a turn that was interrupted or cut off, else lets a held queue go on. A running turn is joined.
function Session:resume()
  self:ensure(function(client, failure)
    if not client then
      return client_.notify(failure)
    end
    client_.request(client, "deskmate/session/resume", { sessionId = self.id }, function(_, refused)
      if refused then
        client_.notify(refused)
      end
    end)
  end)
end

---Whether it is followed at a server: at this one, or at any.
---@param client_id? integer
---@return boolean
function Session:is_with(client_id)
  return self.client ~= nil and (client_id == nil or self.client.id == client_id)
end

---@return string
function Session:status_text()
  local words = { self.status }
  if self.retry then
    table.insert(words, self.retry)
  end
  if #self.queue.prompts > 0 then
    table.insert(words, ("%d queued%s"):format(#self.queue.prompts, self.queue.held and " (held)" or ""))
  end
  return table.concat(words, " · ")
end

---What each kind of update does.
---@type table<string, fun(self: deskmate.Session, update: table)>
local kinds = {}

---Takes one update. Unknown kinds are left out: a newer server may have more to tell.
---@param update deskmate.Update
function Session:apply(update)
  local kind = kinds[update.kind]
  if kind then
    kind(self, update)
  end
end

function kinds.message(self, update)
  local message = update.message
  self.messages[message.id] = message
  -- A prompt that waits is shown as one of the queue, and in its place when its turn begins.
  if not message.queued then
    self.view:message(message)
    for _, part in ipairs(message.parts) do
      self:set_part(message, part)
    end
  end
end

function kinds.part(self, update)
  local message = self.messages[update.messageId]
  if message then
    self:set_part(message, update.part)
  end
end

---A message tells its parts as they are logged, which can be a moment behind what was streamed: text never shrinks.
---@package
---@param message deskmate.Message
---@param part deskmate.Part
function Session:set_part(message, part)
  local known = self.parts[part.id]
  if known and known.text and part.text and vim.startswith(known.text, part.text) then
    part.text = known.text
  end
  if known and part.state and known.state and part.state.status == "running" then
    part.state.output = part.state.output or known.state.output
  end
  self.parts[part.id] = part
  self.lengths[part.id .. "text"] = nil
  self.lengths[part.id .. "output"] = nil
  self.view:part(message, part)
end

function kinds.delta(self, update)
  local part = self.parts[update.partId]
  local holder = part and (update.field == "text" and part or part.state)
  if not holder then
    return
  end
  local key, field = update.partId .. update.field, update.field
  local old = type(holder[field]) == "string" and holder[field] or ""
  -- Offsets count code points; the length is kept, since counting a long text for each piece would be slow.
  local length = self.lengths[key] or vim.str_utfindex(old, "utf-32")
  local text = update.text ---@type string
  if update.offset > length then
    return self:catch_up()
  end
  local repeated = length - update.offset
  if repeated > 0 then
    text = vim.fn.strcharpart(text, repeated)
  end
  if text ~= "" then
    holder[field] = old .. text
    self.lengths[key] = length + vim.str_utfindex(text, "utf-32")
    self.view:text(part, field == "text" and text or "")
  end
end

---Reads the newest page of messages, after a gap in a stream.
---@package
function Session:catch_up()
  if not self.client then
    return
  end
  client_.request(self.client, "deskmate/session/messages", { sessionId = self.id }, function(page)
    for _, message in ipairs(page and page.messages or {}) do
      kinds.message(self, { message = message })
    end
  end)
end

function kinds.status(self, update)
  self.status = update.status
  self.retry = update.status == "retrying" and update.message or nil
  self.view:state()
  if update.status == "idle" then
    self:warn(files.check_folder(self.root))
  end
end

function kinds.queue(self, update)
  self.queue = update.queue
  self.view:state()
end

function kinds.usage(self, update)
  self.usage = update.usage
  self.view:state()
end

function kinds.session(self, update)
  self.info = update.session
  self.view:state()
end

function kinds.ask(_, update)
  ask.show(update.ask)
end

function kinds.askResolved(_, update)
  ask.withdraw(update.askId)
end

function kinds.changes(self, update)
  self:warn(files.changed(update.files))
end

---@package
---@param kept string[] Files whose buffers hold unsaved text while the disk is newer.
function Session:warn(kept)
  for _, name in ipairs(kept) do
    local words = ("! %s changed on disk; your unsaved text is kept"):format(name)
    self.view:notice(client_.id("tok_"), { { text = words, hl = "DeskmateWarning" } })
  end
end

client_.on_exit(function(client_id)
  for _, session in pairs(followed) do
    if session.client and session.client.id == client_id then
      local cut_off = session.status ~= "idle"
      session.client, session.token, session.status = nil, nil, "stopped"
      session.view:state()
      if cut_off then
        local words = "— interrupted: the server stopped; :DeskmateResume goes on"
        session.view:notice(client_.id("tok_"), { { text = words, hl = "DeskmateWarning" } })
      end
    end
  end
end)

return M
