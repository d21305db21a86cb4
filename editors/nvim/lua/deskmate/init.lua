-- Deskmate for Neovim: the functions behind the commands. The agent runs in the language server; this plugin renders
-- what the server tells, asks the person, and applies edits. See :help deskmate.

local M = {}

---Sets options and, unless `auto_start` is off, enables the language server.
---@param options? table See |deskmate-options|.
function M.setup(options)
  local config = require("deskmate.config")
  config.set(options)
  require("deskmate.files").watch()
  if config.get().auto_start then
    vim.lsp.enable("deskmate")
  end
end

---The chat of the folder that the current buffer belongs to.
---@return deskmate.Chat
local function here()
  require("deskmate.files").watch()
  return require("deskmate.chat").of_buffer(vim.api.nvim_get_current_buf())
end

---Opens the chat. With a prompt, sends it and leaves the person where they are.
---@param prompt? string
---@param lines? {first: integer, last: integer} Lines of the current buffer that the prompt is about.
function M.open(prompt, lines)
  local chat = here()
  local about = lines and require("deskmate.files").lines_part(0, lines.first, lines.last) or nil
  if prompt and prompt:find("%S") then
    chat:open({ focus = false })
    chat:send(prompt, about)
  else
    chat:open({ focus = true })
    chat:attach_part(about)
  end
end

---Opens the chat, or closes it where it is open.
function M.toggle()
  local chat = here()
  if chat:is_open() then
    chat:close()
  else
    chat:open({ focus = true })
  end
end

---Begins a new session; the old one stays in the list.
function M.new()
  local chat = here()
  chat:show_session(nil)
  chat:open({ focus = true })
end

---Lets the person choose a session of this folder.
function M.sessions()
  here():choose_session()
end

---Interrupts the running turn.
function M.stop()
  here().session:interrupt()
end

---Goes on with the interrupted turn, or with the held queue.
function M.resume()
  local chat = here()
  chat:open({ focus = false })
  chat.session:resume()
end

---Answers the oldest open question.
---@param reply deskmate.Reply
---@param remark? string Told to the model with a rejection.
function M.reply(reply, remark)
  require("deskmate.ask").answer_oldest(reply, remark)
end

---One line for a status line: what the session of this folder is doing; empty without one.
---@return string
function M.status()
  local chat = require("deskmate.chat").known(vim.api.nvim_get_current_buf())
  return chat and chat.session:status_text() or ""
end

return M
