-- From the server's shapes to lines of text with highlights. Pure: touches no buffer.

local config = require("deskmate.config")

---@class (exact) deskmate.Line
---@field text string Without a line end.
---@field hl? string Highlight group of the whole line.

local M = {}

local MAX_DETAIL_LINES = 200

---Highlight groups; a colour scheme or the person may set them otherwise.
M.highlights = {
  DeskmateUser = "Title",
  DeskmateAgent = "Function",
  DeskmateReasoning = "Comment",
  DeskmateTool = "Identifier",
  DeskmateDone = "DiagnosticOk",
  DeskmateError = "DiagnosticError",
  DeskmateWarning = "DiagnosticWarn",
  DeskmateAsk = "DiagnosticWarn",
  DeskmateKeys = "Special",
  DeskmateDetail = "Comment",
  DeskmateAdded = "Added",
  DeskmateRemoved = "Removed",
}

---@param text string
---@return string
local function one_line(text)
  return (text:gsub("%s*\n%s*", " "))
end

---@param text string
---@param hl? string
---@param indent? string
---@return deskmate.Line[]
local function lines_of(text, hl, indent)
  return vim.tbl_map(function(line)
    return { text = (indent or "") .. line, hl = hl }
  end, vim.split(text, "\n", { plain = true }))
end

---@param lines deskmate.Line[]
---@param more deskmate.Line[]
---@return deskmate.Line[]
local function with(lines, more)
  return vim.list_extend(lines, more)
end

---@param message deskmate.Message
---@return deskmate.Line
function M.header(message)
  if message.role == "user" then
    return { text = "# You", hl = "DeskmateUser" }
  end
  return { text = "# Deskmate", hl = "DeskmateAgent" }
end

---@param folder string
---@return deskmate.Line[]
function M.title(folder)
  return { { text = "Deskmate in " .. vim.fn.fnamemodify(folder, ":~"), hl = "DeskmateDetail" } }
end

---@param part deskmate.Part
---@param opened boolean Details are shown.
---@param complete boolean The message is complete.
---@return deskmate.Line[]
function M.part(part, opened, complete)
  if part.type == "text" then
    return lines_of(part.label or part.text, part.voided and "DeskmateDetail" or nil)
  elseif part.type == "reasoning" then
    return M.reasoning(part, opened, complete)
  elseif part.type == "tool" then
    return M.tool(part, opened)
  elseif part.type == "file" then
    local range = part.range and (":%d-%d"):format(part.range.start.line + 1, part.range["end"].line) or ""
    return { { text = "@" .. M.name(part.uri) .. range, hl = "DeskmateDetail" } }
  end
  return { { text = ("[%s]"):format(part.type), hl = "DeskmateDetail" } }
end

---Dimmed while it comes, one line afterwards.
---@param part deskmate.ReasoningPart
---@param opened boolean
---@param complete boolean
---@return deskmate.Line[]
function M.reasoning(part, opened, complete)
  local lines = lines_of(part.text, "DeskmateReasoning")
  if not complete or opened or #lines == 1 then
    return lines
  end
  local first = ("%s thought: %s"):format(config.get().icons.folded, lines[1].text)
  return { { text = ("%s (%d lines)"):format(first, #lines), hl = "DeskmateReasoning" } }
end

---@param part deskmate.ToolPart
---@param opened boolean
---@return deskmate.Line[]
function M.tool(part, opened)
  local state = part.state
  local failed = state.status == "error" or state.success == false
  local icon = config.get().icons[failed and "error" or state.status]
  local title = state.title or part.summary
  local named = vim.startswith(title, part.tool)
  local head = named and ("%s %s"):format(icon, title) or ("%s %s %s"):format(icon, part.tool, title)
  local remark = M.outcome(state)
  local hl = failed and "DeskmateError" or state.status == "completed" and "DeskmateDone" or "DeskmateTool"
  local lines = { { text = one_line(remark and ("%s — %s"):format(head, remark) or head), hl = hl } }
  if not opened then
    return lines
  end
  if state.input ~= nil then
    local input = type(state.input) == "string" and state.input or vim.inspect(state.input)
    with(lines, lines_of(input, "DeskmateDetail", "    "))
  end
  if state.output and state.output ~= "" then
    with(lines, lines_of(state.output, "DeskmateDetail", "  │ "))
  end
  if state.error then
    with(lines, lines_of(state.error, "DeskmateError", "  │ "))
  end
  if #lines > MAX_DETAIL_LINES then
    local left = #lines - MAX_DETAIL_LINES
    lines = vim.list_slice(lines, 1, MAX_DETAIL_LINES)
    local words = left == 1 and "1 more line" or ("%d more lines"):format(left)
    table.insert(lines, { text = "  │ … " .. words, hl = "DeskmateDetail" })
  end
  return lines
end

---What is worth saying about how a call ended.
---@param state deskmate.ToolState
---@return string?
function M.outcome(state)
  if state.rejectedBy then
    if state.rejectedBy ~= "person" then
      return ("rejected by a %s"):format(state.rejectedBy)
    end
    -- With the remark, if there was one; other words than these say why nobody answered.
    return (one_line(state.error or "rejected"):gsub("^the person refused", "rejected"))
  elseif state.timedOut then
    return "timed out"
  elseif state.interrupted then
    return state.outcomeUnknown and "interrupted, it may have acted" or "interrupted"
  elseif state.error then
    return vim.split(state.error, "\n", { plain = true })[1]
  elseif state.exitCode and state.exitCode ~= 0 then
    return ("exit code %d"):format(state.exitCode)
  end
end

---@param failure deskmate.Failure|deskmate.TurnError
---@return deskmate.Line[]
function M.failure(failure)
  local lines = lines_of(config.get().icons.error .. " " .. failure.message, "DeskmateError")
  return failure.hint and with(lines, lines_of(failure.hint, "DeskmateWarning", "  ")) or lines
end

---@type table<deskmate.Finish, string> What is told of a turn that did not simply end.
local finishes = {
  interrupted = "interrupted",
  length = "the answer reached its longest length",
  refused = "the model refused",
  denied = "stopped, since you said no",
  stepLimit = "stopped at the step limit",
  budget = "stopped at the budget",
  error = "failed",
}

---@param result deskmate.TurnResult
---@return deskmate.Line[]?
function M.result(result)
  if result.error then
    return M.failure(result.error)
  end
  local words = finishes[result.finish]
  return words and { { text = "— " .. words, hl = "DeskmateWarning" } } or nil
end

---@param prompts deskmate.QueuedPrompt[]
---@param held boolean
---@return deskmate.Line[]
function M.queue(prompts, held)
  return vim.tbl_map(function(prompt)
    return { text = ("↳ %s: %s"):format(held and "held" or "queued", one_line(prompt.text)), hl = "DeskmateDetail" }
  end, prompts)
end

---@param ask deskmate.Ask
---@param offered deskmate.Reply[] The answers that can be given.
---@return deskmate.Line[]
function M.ask(ask, offered)
  local icons, keys = config.get().icons, config.get().keys
  local lines = { { text = ("%s %s"):format(icons.ask, one_line(ask.title)), hl = "DeskmateAsk" } }
  local detail = ask.detail or {}
  if detail.command then
    with(lines, lines_of(detail.command, nil, "  $ "))
    table.insert(lines, { text = "  in " .. one_line(detail.workdir), hl = "DeskmateDetail" })
  elseif detail.diff then
    with(lines, M.diff(detail.diff))
  elseif detail.url then
    table.insert(lines, { text = "  " .. one_line(detail.url) })
  elseif detail.tool then
    with(lines, lines_of(("%s %s"):format(detail.tool, vim.inspect(detail.input)), nil, "  "))
  end
  local words = { once = "once", session = "this session", always = "always", reject = "reject" }
  if ask.kind == "trust" then
    words.always = "trust"
  end
  local offers = vim.tbl_map(function(reply)
    return ("[%s] %s"):format(keys[reply], words[reply])
  end, offered)
  if ask.kind ~= "trust" then
    table.insert(offers, ("[%s] reject with a remark"):format(keys.remark))
  end
  table.insert(lines, { text = "  " .. table.concat(offers, "  "), hl = "DeskmateKeys" })
  local always = vim.list_contains(offered, "always")
  for _, line in ipairs(ask.kind == "permission" and M.grants(ask, always) or {}) do
    table.insert(lines, { text = "  " .. one_line(line), hl = "DeskmateDetail" })
  end
  return lines
end

---@type table<string, string> What is allowed, in a person's word; another permission is called by its name.
local permissions = { bash = "command", external_directory = "access outside the folder" }

---What *session* allows from then on, and what *always* does.
---@param ask deskmate.Ask
---@param always boolean *always* is offered.
---@return string[]
function M.grants(ask, always)
  local function told(reply, patterns, span)
    local what = permissions[ask.permission] or ask.permission
    local like = vim.list_contains(patterns, "*") and "" or (" like %s"):format(table.concat(patterns, ", "))
    return ("%s allows every %s%s %s"):format(reply, what, like, span)
  end
  local all, stored = {}, {}
  for _, one in ipairs(ask.always or {}) do
    table.insert(all, one.pattern)
    if one.stored then
      table.insert(stored, one.pattern)
    end
  end
  local lines = {}
  if #all > 0 then
    table.insert(lines, told("session", all, "of this session"))
  end
  if always then
    table.insert(lines, told("always", stored, "of later sessions too"))
  end
  return lines
end

---@param diff string
---@return deskmate.Line[]
function M.diff(diff)
  return vim.tbl_map(function(line)
    local first = line:sub(1, 1)
    local hl = first == "+" and "DeskmateAdded" or first == "-" and "DeskmateRemoved" or nil
    return { text = "  " .. line, hl = first == "@" and "DeskmateDetail" or hl }
  end, vim.split(vim.trim(diff), "\n", { plain = true }))
end

---A path as a person names it.
---@param uri string
---@return string
function M.name(uri)
  return vim.fn.fnamemodify(vim.uri_to_fname(uri), ":~:.")
end

return M
