-- :checkhealth deskmate

local M = {}

function M.check()
  local health = vim.health
  health.start("deskmate")
  if vim.fn.has("nvim-0.11") == 1 then
    health.ok("Neovim 0.11 or newer")
  else
    health.error("Neovim 0.11 is needed")
  end
  local cmd = require("deskmate.config").get().cmd
  if vim.fn.executable(cmd[1]) == 1 then
    health.ok(("%s is %s"):format(cmd[1], vim.fn.exepath(cmd[1])))
  else
    health.error(("%q can't be run"):format(cmd[1]), {
      "install it from the clone of Deskmate: pip install .",
      "or name it in setup: cmd = { '/path/to/deskmate', 'lsp' }",
    })
  end
  local clients = vim.lsp.get_clients({ name = "deskmate" })
  for _, client in ipairs(clients) do
    local told = vim.tbl_get(client, "server_capabilities", "experimental", "deskmate") or {}
    health.ok(("running for %s, server %s"):format(client.root_dir, told.serverVersion or "of unknown version"))
  end
  if #clients == 0 then
    health.info("no server is running; it starts with :Deskmate")
  end
  health.info("the server's own check is `deskmate doctor`")
end

return M
