-- Commands. Nothing is loaded and no server is started until one of them is used or `setup` is called.

if vim.g.loaded_deskmate then
  return
end
vim.g.loaded_deskmate = true

local command = vim.api.nvim_create_user_command

command("Deskmate", function(args)
  local lines = args.range > 0 and { first = args.line1, last = args.line2 } or nil
  require("deskmate").open(args.args, lines)
end, { nargs = "*", range = true, desc = "Open the chat, or send a prompt; with a range, about these lines" })

command("DeskmateToggle", function()
  require("deskmate").toggle()
end, { desc = "Open or close the chat" })

command("DeskmateNew", function()
  require("deskmate").new()
end, { desc = "Begin a new session" })

command("DeskmateSessions", function()
  require("deskmate").sessions()
end, { desc = "Choose a session of this folder and go on with it" })

command("DeskmateStop", function()
  require("deskmate").stop()
end, { desc = "Interrupt the running turn" })

command("DeskmateResume", function()
  require("deskmate").resume()
end, { desc = "Go on with the interrupted turn, or with the held queue" })

command("DeskmateReply", function(args)
  require("deskmate").reply(args.fargs[1], table.concat(args.fargs, " ", 2))
end, {
  nargs = "+",
  desc = "Answer the open question: once, session, or reject [remark]; always where it is offered",
  complete = function(lead)
    return vim.tbl_filter(function(reply)
      return vim.startswith(reply, lead)
    end, require("deskmate.ask").replies())
  end,
})
