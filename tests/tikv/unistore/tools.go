//go:build tools

package us

import _ "github.com/ngaut/unistore/server"
