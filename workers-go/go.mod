module github.com/toolfleet/toolfleet/workers-go

go 1.22

require (
	github.com/gomodule/redigo v1.8.3
	github.com/toolfleet/toolfleet/wire v0.1.0
	github.com/xeipuuv/gojsonschema v1.2.0
)

// In a checkout the contract stands beside this module.
replace github.com/toolfleet/toolfleet/wire => ../wire
