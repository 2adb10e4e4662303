// Package v1 is the published contract as Go programs embed it: the Lua scripts, and of which files each is made.
package v1

import "embed"

// Files holds scripts.json and the folder scripts.
//
//go:embed scripts.json scripts
var Files embed.FS
