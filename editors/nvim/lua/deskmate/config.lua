-- Settings: the defaults, what the person changed, and what of it the server is told.

local M = {}

---@class (exact) deskmate.Window
---@field width number Columns of the chat; below 1 a part of the screen.
---@field input_height integer Lines of the input.

---@class (exact) deskmate.Icons
---@field pending string
---@field running string
---@field completed string
---@field error string
---@field ask string
---@field folded string

---@class (exact) deskmate.Keys In the chat. Each is one key in the notation of |key-notation|.
---@field once string
---@field session string
---@field always string
---@field reject string
---@field remark string
---@field interrupt string
---@field toggle string
---@field input string

---@class (exact) deskmate.Config
---@field cmd string[] The command that starts the server.
---@field auto_start boolean Start the server with the first file that is opened, so that it knows open buffers.
---@field root_markers string[] What marks the top of a workspace.
---@field server table Sent as `initializationOptions.deskmate`: `{config = {model = …}, stateDir = …}`.
---@field ask_grace_ms integer Keys pressed so soon after a question appeared don't answer it.
---@field window deskmate.Window
---@field icons deskmate.Icons
---@field keys deskmate.Keys

---@type deskmate.Config
local defaults = {
  cmd = { "deskmate", "lsp" },
  auto_start = true,
  root_markers = { "deskmate.toml", ".deskmate", ".git" },
  server = {},
  ask_grace_ms = 300,
  window = { width = 0.4, input_height = 5 },
  icons = { pending = "·", running = "…", completed = "✓", error = "✗", ask = "?", folded = "▸" },
  keys = {
    once = "y",
    session = "s",
    always = "a",
    reject = "n",
    remark = "r",
    interrupt = "<C-c>",
    toggle = "<Tab>",
    input = "i",
  },
}

local current = vim.deepcopy(defaults)

---Sets what differs from the defaults. Raises on a name that doesn't exist, so that a typing error is seen.
---@param options? table Like `deskmate.Config`, any part of it.
function M.set(options)
  options = options or {}
  for name, value in pairs(options) do
    if defaults[name] == nil then
      error(("deskmate: unknown option %q; see :help deskmate-options"):format(name), 0)
    end
    vim.validate("deskmate." .. name, value, type(defaults[name]))
  end
  current = vim.tbl_deep_extend("force", vim.deepcopy(defaults), options)
end

---@return deskmate.Config
function M.get()
  return current
end

---What goes to the server at its start. An empty table must be an object in JSON, not a list.
---@return table
function M.server_options()
  return next(current.server) and current.server or vim.empty_dict()
end

return M
