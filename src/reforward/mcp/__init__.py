"""The door for guests: MCP over stdio and HTTP, and plain JSON over HTTP, all on one desk."""
