-- The buffer that shows a conversation: blocks of lines, each with an id, one below the other. Streaming appends to a
-- block without writing it anew. Open questions and the queue are kept at the end.

local render = require("deskmate.render")

local namespace = vim.api.nvim_create_namespace("deskmate")

---@class (exact) deskmate.Block
---@field id string
---@field group "title"|"header"|"text"|"tool"|"notice"|"tail" Between tools there is no empty line.
---@field lead integer Empty lines before it: 0 or 1.
---@field height integer Lines, with the empty one.
---@field hl? string Highlight of its last line, for text that is appended.

---@class deskmate.Transcript
---@field buf integer
---@field package blocks deskmate.Block[]
---@field package last_role? string
---@field package opened table<string, boolean> Parts whose details are shown.
---@field package shown table<string, {message: deskmate.Message, part: deskmate.Part}>
local Transcript = {}
Transcript.__index = Transcript

local M = {}

---@param root string
---@return deskmate.Transcript
function M.new(root)
  local buf = vim.api.nvim_create_buf(false, true)
  local options = { bufhidden = "hide", modifiable = false, swapfile = false, undolevels = -1, filetype = "deskmate" }
  for name, value in pairs(options) do
    vim.api.nvim_set_option_value(name, value, { buf = buf })
  end
  vim.b[buf].deskmate_root = root
  pcall(vim.treesitter.start, buf, "markdown")
  for name, link in pairs(render.highlights) do
    vim.api.nvim_set_hl(0, name, { link = link, default = true })
  end
  local self = setmetatable({ buf = buf, blocks = {}, opened = {}, shown = {} }, Transcript)
  self:clear(root)
  return self
end

---@param root string
function Transcript:clear(root)
  self.blocks, self.opened, self.shown, self.last_role = {}, {}, {}, nil
  local title = render.title(root)
  self:write(0, -1, title)
  self.blocks[1] = { id = "title", group = "title", lead = 0, height = #title }
end

---Replaces rows and lays the highlights.
---@package
---@param first integer
---@param last integer
---@param lines deskmate.Line[]
function Transcript:write(first, last, lines)
  self:change(function()
    local texts = vim.tbl_map(function(line)
      return line.text
    end, lines)
    vim.api.nvim_buf_clear_namespace(self.buf, namespace, first, last)
    vim.api.nvim_buf_set_lines(self.buf, first, last, false, texts)
    for offset, line in ipairs(lines) do
      self:mark(first + offset - 1, line.hl)
    end
  end)
end

---@package
---@param row integer
---@param hl? string
function Transcript:mark(row, hl)
  if hl then
    vim.api.nvim_buf_set_extmark(self.buf, namespace, row, 0, {
      end_row = row + 1,
      strict = false,
      hl_group = hl,
      priority = 150,
      undo_restore = false,
    })
  end
end

---Changes the buffer; windows whose cursor is in the last line stay at the end.
---@package
---@param change fun()
function Transcript:change(change)
  local last = vim.api.nvim_buf_line_count(self.buf)
  local following = vim.tbl_filter(function(win)
    return vim.api.nvim_win_get_cursor(win)[1] >= last
  end, vim.fn.win_findbuf(self.buf))
  vim.bo[self.buf].modifiable = true
  change()
  vim.bo[self.buf].modifiable = false
  last = vim.api.nvim_buf_line_count(self.buf)
  for _, win in ipairs(following) do
    vim.api.nvim_win_set_cursor(win, { last, 0 })
  end
end

---@package
---@param id string
---@return integer? index
---@return integer row Its first row.
function Transcript:locate(id)
  local row = vim.api.nvim_buf_line_count(self.buf)
  -- What changes is nearly always near the end.
  for index = #self.blocks, 1, -1 do
    row = row - self.blocks[index].height
    if self.blocks[index].id == id then
      return index, row
    end
  end
  return nil, row
end

---Puts a block at the end, or its new lines in its place.
---@param id string
---@param group "header"|"text"|"tool"|"notice"|"tail"
---@param lines deskmate.Line[]
function Transcript:put(id, group, lines)
  local index, row = self:locate(id)
  if not index then
    index, row = self:make(id, group)
  end
  local block = self.blocks[index]
  local all = block.lead == 1 and { { text = "" } } or {}
  vim.list_extend(all, lines)
  self:write(row, row + block.height, all)
  block.height, block.hl = #all, lines[#lines] and lines[#lines].hl
end

---Makes an empty block: at the end, but before questions and queue unless it is one of these.
---@package
---@param id string
---@param group string
---@return integer index
---@return integer row
function Transcript:make(id, group)
  local index, row = #self.blocks + 1, vim.api.nvim_buf_line_count(self.buf)
  while group ~= "tail" and self.blocks[index - 1].group == "tail" do
    index = index - 1
    row = row - self.blocks[index].height
  end
  local before = self.blocks[index - 1].group
  local joined = before == "header" or (group == "tool" and before == "tool")
  table.insert(self.blocks, index, { id = id, group = group, lead = joined and 0 or 1, height = 0 })
  return index, row
end

---Appends to the last line of a block.
---@param id string
---@param text string
function Transcript:append(id, text)
  local index, row = self:locate(id)
  if not index then
    return
  end
  local block = self.blocks[index]
  local last = row + block.height - 1
  local lines = vim.split(text, "\n", { plain = true })
  self:change(function()
    local width = #vim.api.nvim_buf_get_lines(self.buf, last, last + 1, false)[1]
    vim.api.nvim_buf_set_text(self.buf, last, width, last, width, lines)
    for offset = 1, #lines - 1 do
      self:mark(last + offset, block.hl)
    end
  end)
  block.height = block.height + #lines - 1
end

---@param id string
function Transcript:remove(id)
  local index, row = self:locate(id)
  if index then
    self:write(row, row + self.blocks[index].height, {})
    table.remove(self.blocks, index)
  end
end

---The block at a row.
---@param row integer
---@return string? id
function Transcript:at(row)
  local first = 0
  for _, block in ipairs(self.blocks) do
    first = first + block.height
    if row < first then
      return block.id
    end
  end
end

---The last row of a block.
---@param id string
---@return integer?
function Transcript:row(id)
  local index, row = self:locate(id)
  return index and row + self.blocks[index].height - 1
end

---Shows or hides a part's details.
---@param id string
function Transcript:toggle(id)
  local shown = self.shown[id]
  if shown then
    self.opened[id] = not self.opened[id] or nil
    self:part(shown.message, shown.part)
  end
end

-- What a session tells (`deskmate.View`).

---@param message deskmate.Message
function Transcript:message(message)
  local id = "message:" .. message.id
  if not self:locate(id) and self.last_role ~= message.role then
    self.last_role = message.role
    self:put(id, "header", { render.header(message) })
  end
  if message.error then
    self:put("error:" .. message.id, "notice", render.failure(message.error))
  end
end

---@param message deskmate.Message
---@param part deskmate.Part
function Transcript:part(message, part)
  self.shown[part.id] = { message = message, part = part }
  local lines = render.part(part, self.opened[part.id] or false, message.completedAt ~= nil)
  self:put(part.id, part.type == "tool" and "tool" or "text", lines)
end

---@param part deskmate.Part
---@param text string
function Transcript:text(part, text)
  if part.type == "tool" then
    if self.opened[part.id] then
      self:part(self.shown[part.id].message, part)
    end
  else
    self:append(part.id, text)
  end
end

---@param id string
---@param lines deskmate.Line[]
function Transcript:notice(id, lines)
  self:put(id, "notice", lines)
end

return M
