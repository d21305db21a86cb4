-- The person's buffers: the agent's edits arrive in them, are saved, and what changed on disk is read anew. Text that
-- a person has not saved is never lost.

local M = {}

---@type table<integer, string> What the file was when the buffer last read or wrote it, by buffer.
local stamps = {}

---@param bufnr integer
---@return string?
local function stamp(bufnr)
  local stat = vim.uv.fs_stat(vim.api.nvim_buf_get_name(bufnr))
  return stat and ("%d.%d.%d"):format(stat.mtime.sec, stat.mtime.nsec, stat.size)
end

---Whether a buffer is a file that is loaded.
---@param bufnr integer
---@return boolean
local function is_file(bufnr)
  return bufnr > 0 and vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].buftype == ""
end

---The buffer that has a file open.
---@param uri string
---@return integer? bufnr
local function buffer_of(uri)
  local path = vim.uri_to_fname(uri)
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if is_file(bufnr) then
      local name = vim.api.nvim_buf_get_name(bufnr)
      -- The server may name a file by its real path, the buffer by a link to it.
      if name == path or (name ~= "" and vim.uv.fs_realpath(name) == path) then
        return bufnr
      end
    end
  end
end

---Lines of a buffer as part of a prompt.
---@param bufnr integer
---@param first integer From 1.
---@param last integer
---@return deskmate.FileInput? part Nil for a buffer that is no file.
function M.lines_part(bufnr, first, last)
  if vim.api.nvim_buf_get_name(bufnr) == "" then
    return nil
  end
  local range = { start = { line = first - 1, character = 0 }, ["end"] = { line = last, character = 0 } }
  return { type = "file", uri = vim.uri_from_bufnr(bufnr), range = range }
end

local watching = false

---Watches buffers, once.
function M.watch()
  if watching then
    return
  end
  watching = true
  local group = vim.api.nvim_create_augroup("deskmate", {})
  local function remember(args)
    if is_file(args.buf) then
      stamps[args.buf] = stamp(args.buf)
    end
  end
  vim.api.nvim_create_autocmd({ "BufReadPost", "BufWritePost", "FileChangedShellPost" }, {
    group = group,
    desc = "Deskmate: remember the file as it was read or written",
    callback = remember,
  })
  vim.api.nvim_create_autocmd({ "BufReadPost", "BufNewFile", "BufFilePost" }, {
    group = group,
    desc = "Deskmate: let the agent read what the buffer holds",
    callback = function(args)
      vim.schedule(function()
        if vim.api.nvim_buf_is_valid(args.buf) then
          require("deskmate.client").attach(args.buf)
        end
      end)
    end,
  })
  vim.api.nvim_create_autocmd("BufWipeout", {
    group = group,
    callback = function(args)
      stamps[args.buf] = nil
    end,
  })
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    remember({ buf = bufnr })
  end
end

---Reads a clean buffer anew if its file changed.
---@param bufnr integer
local function reload(bufnr)
  -- Without 'autoread' Neovim would ask, and a question blocks the editor.
  local autoread = vim.bo[bufnr].autoread
  vim.bo[bufnr].autoread = true
  pcall(vim.cmd.checktime, { bufnr, mods = { silent = true, emsg_silent = true } })
  vim.bo[bufnr].autoread = autoread
end

---@type table<integer, string> The stamp of the file that a person was warned of, by buffer.
local warned = {}

---Reads a buffer anew if its file changed and it is clean; else warns, once for each change.
---@param bufnr integer
---@return string? kept The file's name, if the buffer holds unsaved text and was warned of just now.
local function settle(bufnr)
  local now = stamp(bufnr)
  if not now or not stamps[bufnr] or now == stamps[bufnr] then
    return nil
  end
  if not vim.bo[bufnr].modified then
    reload(bufnr)
    return nil
  end
  if warned[bufnr] == now then
    return nil
  end
  warned[bufnr] = now
  local name = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(bufnr), ":~:.")
  local words = "Deskmate: %s changed on disk; your unsaved text is kept (:edit! takes the file, :write! your text)"
  vim.notify(words:format(name), vim.log.levels.WARN)
  return name
end

---The agent changed files: see that their buffers show it.
---@param diffs deskmate.FileDiff[]
---@return string[] kept Files whose buffer holds unsaved text and whose disk is newer.
function M.changed(diffs)
  local kept = {}
  for _, diff in ipairs(diffs) do
    local bufnr = buffer_of(diff.uri)
    table.insert(kept, bufnr and settle(bufnr))
  end
  return kept
end

---Looks at every buffer of a folder: a command may have changed any file.
---@param root string
---@return string[] kept As above.
function M.check_folder(root)
  local kept = {}
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    if is_file(bufnr) and vim.startswith(vim.api.nvim_buf_get_name(bufnr), root .. "/") then
      table.insert(kept, settle(bufnr))
    end
  end
  return kept
end

---Begins a new undo step: without it an edit that arrives while the person types is undone with their typing.
---@param bufnr integer
local function break_undo(bufnr)
  vim.bo[bufnr].undolevels = vim.bo[bufnr].undolevels
  local mode = vim.api.nvim_get_mode()
  if mode.mode == "i" and not mode.blocking and bufnr == vim.api.nvim_get_current_buf() then
    -- What is typed next has to begin a step as well, which only a key can say (|i_CTRL-G_u|).
    vim.api.nvim_feedkeys(vim.keycode("<C-g>u"), "in", false)
  end
end

---Handles `workspace/applyEdit`: as Neovim does, but every document's version is checked (Neovim checks the first
---one only, and never version 0), and each edit is an undo step of its own.
---@param err any
---@param params lsp.ApplyWorkspaceEditParams
---@param ctx lsp.HandlerContext
---@return lsp.ApplyWorkspaceEditResult
function M.apply_edit(err, params, ctx)
  local buffers = {} ---@type integer[]
  for _, change in ipairs(params.edit.documentChanges or {}) do
    local document = change.textDocument
    local bufnr = document and buffer_of(document.uri)
    if bufnr then
      local version = vim.lsp.util.buf_versions[bufnr]
      if type(document.version) == "number" and document.version ~= version then
        local reason = ("%s is at version %d, not %d"):format(document.uri, version, document.version)
        return { applied = false, failureReason = reason }
      end
      table.insert(buffers, bufnr)
    end
  end
  for uri in pairs(params.edit.changes or {}) do
    table.insert(buffers, buffer_of(uri))
  end
  vim.tbl_map(break_undo, buffers)
  -- The label is left out: Neovim would print it, and a long one stops the editor with a hit-enter prompt.
  local result = vim.lsp.handlers["workspace/applyEdit"](err, { edit = params.edit }, ctx)
  vim.tbl_map(break_undo, buffers)
  -- The server looks at the text that it was told of, so that has to arrive before the answer.
  require("deskmate.client").flush(assert(vim.lsp.get_client_by_id(ctx.client_id)))
  return result
end

---Writes a buffer. What runs before a write (formatters, trimming) is left out: it would change what the agent wrote
---behind its back. What runs after it is not: language servers are told of the save there.
---@param bufnr integer
---@return boolean saved
local function write(bufnr)
  if vim.bo[bufnr].readonly or not is_file(bufnr) then
    return false
  end
  if not vim.bo[bufnr].modified then
    return true
  end
  if stamps[bufnr] and stamp(bufnr) and stamp(bufnr) ~= stamps[bufnr] then
    -- Neovim would ask whether to overwrite it.
    vim.notify(
      ("Deskmate: %s changed on disk meanwhile and was not saved"):format(vim.api.nvim_buf_get_name(bufnr)),
      vim.log.levels.WARN
    )
    return false
  end
  local ignored = vim.o.eventignore
  vim.o.eventignore = ignored == "" and "BufWritePre" or ignored .. ",BufWritePre"
  local ok, problem = pcall(vim.api.nvim_buf_call, bufnr, function()
    vim.cmd("silent lockmarks write")
  end)
  vim.o.eventignore = ignored
  if not ok then
    vim.notify(("Deskmate: not saved: %s"):format(problem), vim.log.levels.WARN)
  end
  return ok and not vim.bo[bufnr].modified
end

---Handles `deskmate/document/save`.
---@param _ any
---@param params {uris: string[]}
---@return {saved: string[]}
function M.save(_, params)
  local saved = vim.tbl_filter(function(uri)
    local bufnr = buffer_of(uri)
    return bufnr ~= nil and write(bufnr)
  end, params.uris)
  return { saved = saved }
end

return M
