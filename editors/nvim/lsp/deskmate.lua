-- The client's configuration, found by `vim.lsp.enable("deskmate")` and by `vim.lsp.config.deskmate`.
-- What a person sets in `require("deskmate").setup{}` is read when a client starts, so the order doesn't matter.

---@type vim.lsp.Config
return {
  cmd = function(dispatchers, config)
    local cmd = require("deskmate.config").get().cmd
    return vim.lsp.rpc.start(cmd, dispatchers, { cwd = config.root_dir })
  end,
  root_dir = function(bufnr, on_dir)
    on_dir(require("deskmate.client").root(bufnr))
  end,
  capabilities = {
    -- Neovim takes versioned edits but doesn't say so; without them a server can't guard an edit.
    workspace = { workspaceEdit = { documentChanges = true } },
    experimental = { deskmate = { ask = true, save = true } },
  },
  before_init = function(params)
    params.initializationOptions = { deskmate = require("deskmate.config").server_options() }
  end,
  on_init = function(client)
    require("deskmate.client").ready(client)
  end,
  on_exit = function(code, signal, client_id)
    require("deskmate.client").exited(client_id, code, signal)
  end,
  handlers = {
    -- Our updates would reach every plugin that listens to LspProgress; they go to whoever asked for them.
    ["$/progress"] = function(...)
      return require("deskmate.client").progress(...)
    end,
    ["$/cancelRequest"] = function(...)
      return require("deskmate.ask").cancelled(...)
    end,
    ["deskmate/ask"] = function(...)
      return require("deskmate.ask").request(...)
    end,
    ["deskmate/changed"] = function() end,
    ["deskmate/document/save"] = function(...)
      return require("deskmate.files").save(...)
    end,
    ["workspace/applyEdit"] = function(...)
      return require("deskmate.files").apply_edit(...)
    end,
  },
}
