-- The way to the server: finding or starting the client of a folder, requests, and streams of updates.

local config = require("deskmate.config")

local M = {}

---@class (exact) deskmate.Failure Why a request gave no result.
---@field message string
---@field hint? string What the person can do.
---@field kind? string

---@alias deskmate.Follower fun(update: deskmate.Update)

---@type table<integer, table<string, deskmate.Follower>> By client and token.
local followers = {}
---@type table<integer, (fun(client?: vim.lsp.Client, failure?: deskmate.Failure))[]> By client.
local waiting = {}
---@type fun(client_id: integer)[]
local exit_listeners = {}

---A new id. Order is never read from it.
---@param prefix "ses_"|"msg_"|"tok_"
---@return string
function M.id(prefix)
  return prefix .. assert(vim.uv.random(12)):gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end)
end

---The workspace folder of a buffer: where a marker is, else the working directory.
---@param bufnr integer
---@return string
function M.root(bufnr)
  if vim.bo[bufnr].buftype == "" then
    local root = vim.fs.root(bufnr, config.get().root_markers)
    if root then
      return root
    end
  end
  return vim.fs.root(vim.fn.getcwd(), config.get().root_markers) or vim.fn.getcwd()
end

---The running client of a folder.
---@param root string
---@return vim.lsp.Client?
function M.find(root)
  for _, client in ipairs(vim.lsp.get_clients({ name = "deskmate", _uninitialized = true })) do
    if client.root_dir == root and not client:is_stopped() then
      return client
    end
  end
end

---Gives the client of a folder, started if need be, as soon as it can be asked.
---@param root string
---@param done fun(client?: vim.lsp.Client, failure?: deskmate.Failure)
function M.start(root, done)
  local client = M.find(root)
  if client and client.initialized then
    return done(client)
  end
  local id = client and client.id or M._launch(root)
  if not id then
    local cmd = config.get().cmd[1]
    return done(nil, {
      message = ("the server could not be started: %q"):format(cmd),
      hint = "install it from the clone (pip install .), or set `cmd` in setup; :checkhealth deskmate tells more",
    })
  end
  waiting[id] = waiting[id] or {}
  table.insert(waiting[id], done)
end

---@param root string
---@return integer? client_id
function M._launch(root)
  if vim.fn.executable(config.get().cmd[1]) == 0 then
    return nil
  end
  local settings = vim.deepcopy(vim.lsp.config.deskmate)
  settings.root_dir = root
  return vim.lsp.start(settings, { attach = false, silent = true })
end

---Attaches the buffers of a client's folder that are loaded, so that the agent reads what they hold.
---@param client vim.lsp.Client
local function attach_loaded(client)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    M.attach(bufnr, client)
  end
end

---Attaches a file's buffer to the client of its folder. `vim.lsp.enable` alone leaves out files without a filetype.
---@param bufnr integer
---@param client? vim.lsp.Client The only one to attach to.
function M.attach(bufnr, client)
  local loaded = vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].buftype == ""
  if not loaded or vim.api.nvim_buf_get_name(bufnr) == "" then
    return
  end
  local owner = M.find(M.root(bufnr))
  if owner and owner.initialized and (not client or client.id == owner.id) then
    vim.lsp.buf_attach_client(bufnr, owner.id)
  end
end

---The server answered `initialize`.
---@param client vim.lsp.Client
function M.ready(client)
  followers[client.id] = {}
  vim.schedule(function()
    attach_loaded(client)
    for _, done in ipairs(waiting[client.id] or {}) do
      done(client)
    end
    waiting[client.id] = nil
  end)
end

---The server is gone.
---@param client_id integer
---@param code integer
---@param signal integer
function M.exited(client_id, code, signal)
  vim.schedule(function()
    followers[client_id] = nil
    local failure = {
      message = ("the server ended (exit code %d, signal %d)"):format(code, signal),
      hint = ("its words are in %s"):format(vim.lsp.log.get_filename()),
    }
    for _, done in ipairs(waiting[client_id] or {}) do
      done(nil, failure)
    end
    waiting[client_id] = nil
    for _, listener in ipairs(exit_listeners) do
      listener(client_id)
    end
  end)
end

---@param listener fun(client_id: integer)
function M.on_exit(listener)
  table.insert(exit_listeners, listener)
end

---Sends a request; `done` gets the result or the failure. A request that the server reports as cancelled gets
---neither (Neovim drops that answer), so nothing may depend on `done` alone.
---@param client vim.lsp.Client
---@param method string
---@param params table
---@param done? fun(result?: any, failure?: deskmate.Failure)
function M.request(client, method, params, done)
  M.flush(client)
  client:request(method, params, function(err, result)
    local failure ---@type deskmate.Failure?
    if err then
      local data = type(err.data) == "table" and err.data or {}
      failure = { message = err.message, hint = data.hint, kind = data.kind }
    end
    if done then
      done(result, failure)
    elseif failure then
      M.notify(failure)
    end
  end)
end

---Sends the changes that Neovim still holds back (up to 150 ms) in all buffers. Any notification does that.
---@param client vim.lsp.Client
function M.flush(client)
  client:notify("$/setTrace", { value = "off" })
end

---@param failure deskmate.Failure
function M.notify(failure)
  local text = failure.hint and ("%s\n%s"):format(failure.message, failure.hint) or failure.message
  vim.notify("Deskmate: " .. text, vim.log.levels.ERROR)
end

---Makes a token whose updates go to `follower`.
---@param client vim.lsp.Client
---@param follower deskmate.Follower
---@return string token
function M.follow(client, follower)
  local token = M.id("tok_")
  followers[client.id][token] = follower
  return token
end

---Ends a stream on both sides.
---@param client_id integer
---@param token string
function M.unfollow(client_id, token)
  local tokens = followers[client_id]
  if tokens and tokens[token] then
    tokens[token] = nil
    local client = vim.lsp.get_client_by_id(client_id)
    if client and not client:is_stopped() then
      M.request(client, "deskmate/session/unsubscribe", { token = token }, function() end)
    end
  end
end

---Handles `$/progress`.
---@param err any
---@param params {token: string|integer, value: any}
---@param ctx lsp.HandlerContext
function M.progress(err, params, ctx)
  local value = params.value
  if type(value) ~= "table" or vim.list_contains({ "begin", "report", "end" }, value.kind) then
    return vim.lsp.handlers["$/progress"](err, params, ctx)
  end
  local follower = (followers[ctx.client_id] or {})[params.token]
  if follower then
    follower(value)
  end
end

return M
