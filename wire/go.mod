module github.com/toolfleet/toolfleet/wire

go 1.22
