-- The chat of a folder: two windows, one for the conversation and one below it for what the person writes, with their
-- keys and their status line. One chat a folder; it shows one session at a time.

local ask = require("deskmate.ask")
local client_ = require("deskmate.client")
local config = require("deskmate.config")
local render = require("deskmate.render")
local session_ = require("deskmate.session")
local transcript_ = require("deskmate.transcript")

---@class deskmate.Chat: deskmate.View
---@field root string
---@field session deskmate.Session
---@field package transcript deskmate.Transcript
---@field package input integer The buffer that the person writes in.
---@field package parts deskmate.PartInput[] What goes with the next prompt.
---@field package asks table<string, boolean> Questions on show.
local Chat = {}
Chat.__index = Chat

local M = {}

---@type table<string, deskmate.Chat> By folder.
local chats = {}
---@type deskmate.Chat? The one that was used last.
local latest

---@param bufnr integer
---@return string root
local function root_of(bufnr)
  return vim.b[bufnr].deskmate_root or client_.root(bufnr)
end

---@param bufnr integer
---@return deskmate.Chat?
function M.known(bufnr)
  return chats[root_of(bufnr)]
end

---The chat of the folder that a buffer belongs to; made if there is none.
---@param bufnr integer
---@return deskmate.Chat
function M.of_buffer(bufnr)
  local root = root_of(bufnr)
  latest = chats[root] or M.new(root)
  return latest
end

---The chat that shows a session, else the one that was used last.
---@param id? string
---@return deskmate.Chat
function M.of_session(id)
  for _, chat in pairs(chats) do
    if chat.session.id == id then
      return chat
    end
  end
  return latest or M.of_buffer(vim.api.nvim_get_current_buf())
end

---@param root string
---@return deskmate.Chat
function M.new(root)
  local self = setmetatable({ root = root, parts = {}, asks = {} }, Chat)
  self.transcript = transcript_.new(root)
  self.input = vim.api.nvim_create_buf(false, true)
  -- Short, since a status line shows them; the folder is told in the conversation's first line.
  local number = vim.tbl_count(chats) + 1
  local name = number == 1 and "deskmate://" or ("deskmate://%d/"):format(number)
  vim.api.nvim_buf_set_name(self.transcript.buf, name .. "chat")
  vim.api.nvim_buf_set_name(self.input, name .. "input")
  vim.bo[self.input].bufhidden = "hide"
  vim.bo[self.input].filetype = "markdown"
  vim.b[self.input].deskmate_root = root
  self.session = session_.new(root, nil, self)
  self:set_keys()
  chats[root] = self
  return self
end

---@package
function Chat:set_keys()
  local keys = config.get().keys
  local function map(buf, modes, key, desc, action)
    vim.keymap.set(modes, key, action, { buffer = buf, nowait = true, desc = "Deskmate: " .. desc })
  end
  for _, buf in ipairs({ self.transcript.buf, self.input }) do
    map(buf, { "n", "i" }, keys.interrupt, "interrupt", function()
      self.session:interrupt()
    end)
  end
  map(self.input, { "n", "i" }, "<CR>", "send", function()
    self:submit()
  end)
  -- Not every terminal tells <S-CR> from <CR>.
  for _, key in ipairs({ "<C-j>", "<S-CR>", "<M-CR>" }) do
    vim.keymap.set("i", key, "<CR>", { buffer = self.input, desc = "Deskmate: new line" })
  end
  map(self.transcript.buf, "n", keys.input, "write a prompt", function()
    self:open({ focus = true })
  end)
  map(self.transcript.buf, "n", keys.toggle, "show or hide details", function()
    local id = self.transcript:at(vim.fn.line(".") - 1)
    if id then
      self.transcript:toggle(id)
    end
  end)
  for _, reply in ipairs({ "once", "session", "always", "reject", "remark" }) do
    local key = keys[reply]
    -- Only on a question does the key answer it: elsewhere `y` copies and `n` searches, as ever.
    vim.keymap.set("n", key, function()
      local id = self:ask_under_cursor()
      if not id then
        return key
      end
      vim.schedule(function()
        ask.key(id, reply)
      end)
      return "<Ignore>"
    end, { buffer = self.transcript.buf, expr = true, nowait = true, desc = "Deskmate: answer " .. reply })
  end
end

---@package
---@return string? id
function Chat:ask_under_cursor()
  local id = self.transcript:at(vim.fn.line(".") - 1)
  id = id and id:match("^ask:(.*)$")
  return id and self.asks[id] and id or nil
end

-- Windows.

---@param buf integer
---@return integer? win In this tab page.
local function window_of(buf)
  local win = vim.fn.bufwinid(buf)
  return win ~= -1 and win or nil
end

---@return boolean
function Chat:is_open()
  return window_of(self.transcript.buf) ~= nil
end

---Opens the windows that are not open.
---@param options {focus: boolean} With focus the person can write at once.
function Chat:open(options)
  local before = vim.api.nvim_get_current_win()
  local size = config.get().window
  local top = window_of(self.transcript.buf)
  if not top then
    local width = size.width < 1 and math.floor(vim.o.columns * size.width) or size.width
    top = vim.api.nvim_open_win(self.transcript.buf, false, { split = "right", win = -1, width = math.max(width, 20) })
    self:set_window(top)
    vim.api.nvim_win_set_cursor(top, { vim.api.nvim_buf_line_count(self.transcript.buf), 0 })
  end
  local bottom = window_of(self.input)
  if not bottom then
    local place = { split = "below", win = top, height = size.input_height }
    bottom = vim.api.nvim_open_win(self.input, false, place)
    self:set_window(bottom)
    vim.wo[bottom].winfixheight = true
  end
  self:state()
  if options.focus then
    vim.api.nvim_set_current_win(bottom)
    vim.cmd.startinsert({ bang = true })
  elseif vim.api.nvim_win_is_valid(before) then
    vim.api.nvim_set_current_win(before)
  end
end

---@package
---@param win integer
function Chat:set_window(win)
  local options = {
    wrap = true,
    linebreak = true,
    number = false,
    relativenumber = false,
    signcolumn = "no",
    foldcolumn = "0",
    list = false,
    spell = false,
  }
  -- Neovim's own status line has no room for a name beside the ruler here; a person's own stays.
  if vim.go.statusline == vim.api.nvim_get_option_info2("statusline", {}).default then
    options.statusline = "%f%<"
  end
  for name, value in pairs(options) do
    vim.api.nvim_set_option_value(name, value, { scope = "local", win = win })
  end
  -- The two windows go together.
  vim.api.nvim_create_autocmd("WinClosed", {
    pattern = tostring(win),
    once = true,
    callback = vim.schedule_wrap(function()
      self:close()
    end),
  })
end

function Chat:close()
  for _, buf in ipairs({ self.input, self.transcript.buf }) do
    local win = window_of(buf)
    -- The last window of all can't be closed.
    if win and #vim.api.nvim_list_wins() > 1 then
      vim.api.nvim_win_close(win, true)
    end
  end
end

-- Prompts.

---Keeps a part for the next prompt.
---@param part? deskmate.PartInput
function Chat:attach_part(part)
  if part then
    table.insert(self.parts, part)
    self:state()
  end
end

---Sends what the person wrote, and leaves them at the conversation.
---@package
function Chat:submit()
  local text = table.concat(vim.api.nvim_buf_get_lines(self.input, 0, -1, false), "\n")
  if not text:find("%S") then
    return
  end
  vim.api.nvim_buf_set_lines(self.input, 0, -1, false, {})
  vim.cmd.stopinsert()
  local top = window_of(self.transcript.buf)
  if top then
    vim.api.nvim_set_current_win(top)
    vim.api.nvim_win_set_cursor(top, { vim.api.nvim_buf_line_count(self.transcript.buf), 0 })
  end
  self:send(text)
end

---Sends a prompt.
---@param text string
---@param part? deskmate.PartInput
function Chat:send(text, part)
  self:attach_part(part)
  local kept = self.parts
  local parts = vim.list_extend({ { type = "text", text = text } }, kept)
  self.parts = {}
  local session = self.session
  session:prompt(parts, function(result, failure)
    if session ~= self.session then
      return
    end
    if failure then
      self:notice(client_.id("tok_"), render.failure(failure))
      self:give_back(text, kept)
    elseif result then
      self:show_result(result)
    end
  end)
  self:state()
end

---A prompt that was not accepted goes back to the input, unless the person has begun something else.
---@package
---@param text string
---@param parts deskmate.PartInput[]
function Chat:give_back(text, parts)
  local lines = vim.api.nvim_buf_get_lines(self.input, 0, -1, false)
  if #lines == 1 and lines[1] == "" then
    vim.api.nvim_buf_set_lines(self.input, 0, -1, false, vim.split(text, "\n", { plain = true }))
    self.parts = parts
  end
end

---Tells how a turn ended, where that is not plain to see.
---@package
---@param result deskmate.TurnResult
function Chat:show_result(result)
  local lines = render.result(result)
  for _, message in pairs(self.session.messages) do
    if message.error and message.parentId == result.messageId and result.error then
      return
    end
  end
  if lines then
    self:notice("result:" .. result.messageId, lines)
  end
end

-- Sessions.

---@param id? string Without it, a new session.
function Chat:show_session(id)
  self.session:leave()
  self.session = session_.new(self.root, id, self)
  self.transcript:clear(self.root)
  self.asks = {}
  if id then
    self.session:ensure(function(_, failure)
      if failure then
        self:notice(client_.id("tok_"), render.failure(failure))
      end
    end)
  end
  self:state()
end

function Chat:choose_session()
  client_.start(self.root, function(client, failure)
    if not client then
      return client_.notify(failure)
    end
    local params = { folder = vim.uri_from_fname(self.root) }
    client_.request(client, "deskmate/session/list", params, function(page, refused)
      if refused then
        return client_.notify(refused)
      end
      vim.ui.select(page.sessions, {
        prompt = "Deskmate sessions",
        format_item = function(session)
          return ("%s  %s"):format(os.date("%Y-%m-%d %H:%M", math.floor(session.updatedAt / 1000)), session.title)
        end,
      }, function(session)
        if session then
          self:show_session(session.id)
          self:open({ focus = false })
        end
      end)
    end)
  end)
end

-- Questions.

---@param open deskmate.Ask
function Chat:show_ask(open)
  self.asks[open.id] = true
  if not self:is_open() then
    self:open({ focus = false })
  end
  self.transcript:put("ask:" .. open.id, "tail", render.ask(open, ask.offers(open)))
  self:state()
end

---@param id string
function Chat:hide_ask(id)
  local here = self:ask_under_cursor() == id
  self.asks[id] = nil
  self.transcript:remove("ask:" .. id)
  local win = window_of(self.transcript.buf)
  local rest = vim.tbl_filter(function(other)
    return self.asks[other]
  end, ask.list())
  if here and rest[1] and win then
    vim.api.nvim_win_set_cursor(win, { self.transcript:row("ask:" .. rest[1]) + 1, 0 })
  end
  self:state()
end

-- What the session tells (`deskmate.View`).

function Chat:message(message)
  self.transcript:message(message)
end

function Chat:part(message, part)
  self.transcript:part(message, part)
end

function Chat:text(part, text)
  self.transcript:text(part, text)
end

function Chat:notice(id, lines)
  self.transcript:notice(id, lines)
end

---@param buf integer
---@param text string
local function set_bar(buf, text)
  -- What has no room is cut at the end (`%<`); by itself Neovim cuts at the start.
  local bar = " " .. text:gsub("%c", " "):gsub("%%", "%%%%") .. "%<"
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    vim.api.nvim_set_option_value("winbar", bar, { scope = "local", win = win })
  end
end

---Shows status and queue.
function Chat:state()
  local queue = self.session.queue
  if #queue.prompts > 0 then
    self.transcript:put("queue", "tail", render.queue(queue.prompts, queue.held))
  else
    self.transcript:remove("queue")
  end
  local info = self.session.info
  local title = info and { info.title, info.model } or { "new session" }
  set_bar(self.transcript.buf, ("%s │ %s"):format(self.session:status_text(), table.concat(title, " │ ")))
  local keys = config.get().keys
  local hint = ("<CR> sends, %s interrupts, <C-j> new line"):format(keys.interrupt)
  if next(self.asks) then
    hint = "a question waits above"
  elseif #self.parts > 0 then
    hint = ("%d attached │ %s"):format(#self.parts, hint)
  end
  set_bar(self.input, hint)
end

return M
