package rest

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// OpenAPI describes the short paths, made of the routes themselves.
func OpenAPI() map[string]any {
	paths := map[string]any{watchPath: map[string]any{"get": watchOperation}}
	for i := range routes {
		r := &routes[i]
		ops, ok := paths[r.path()].(map[string]any)
		if !ok {
			ops = map[string]any{}
			paths[r.path()] = ops
		}
		ops[strings.ToLower(r.method)] = r.operation()
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "Holdfast", "version": "1",
			"description": "The short paths of a Holdfast node. A name may contain slashes; write a leading one as %2F. The whole API is there as POST /holdfast.v1.{Service}/{Method} with JSON.",
		},
		"paths": paths,
	}
}

type object = map[string]any

func (r *route) operation() object {
	op := object{
		"summary": r.says, "operationId": strings.Trim(r.kind+"_"+strings.ReplaceAll(r.verb, "-", "_"), "_") + "_" + strings.ToLower(r.method),
		"parameters": []object{
			{"name": "name", "in": "path", "required": true, "schema": object{"type": "string", "maxLength": gateway.MaxName}},
			header("Holdfast-Namespace", "the namespace; default: default"),
			header("Idempotency-Key", "makes a repeated call the same call"),
		},
		"responses": object{
			"200":     object{"description": "done", "content": content(r.out)},
			"default": failed,
		},
	}
	switch {
	case r.in.NumField() == 0:
	case r.method == "GET" || r.method == "DELETE":
		op["parameters"] = append(op["parameters"].([]object), queryParameters(r.in)...)
	default:
		op["requestBody"] = object{"content": content(r.in)}
	}
	return op
}

// failed is the answer of a call that was not done.
var failed = object{"description": "not done, or not known to be", "content": content(reflect.TypeFor[failure]())}

func header(name, says string) object {
	return object{"name": name, "in": "header", "description": says, "schema": object{"type": "string"}}
}

func content(t reflect.Type) object {
	return object{"application/json": object{"schema": schema(t)}}
}

func queryParameters(t reflect.Type) (list []object) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		list = append(list, object{"name": name, "in": "query", "description": f.Tag.Get("doc"), "schema": schema(f.Type)})
	}
	return list
}

// schema describes a type of a body.
func schema(t reflect.Type) object {
	if t == reflect.TypeFor[json.RawMessage]() {
		return object{"type": "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint64:
		return object{"type": "integer", "format": "uint64", "minimum": 0}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": schema(t.Elem())}
	}
	properties := object{}
	addProperties(properties, t)
	return object{"type": "object", "properties": properties}
}

func addProperties(properties object, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			addProperties(properties, f.Type)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		s := schema(f.Type)
		s["description"] = f.Tag.Get("doc")
		properties[name] = s
	}
}

var watchOperation = object{
	"summary": "tells what happens as server-sent events: ready first, then event, or resync if some were left out", "operationId": "watch",
	"parameters": []object{
		{"name": "prefix", "in": "query", "description": "names and keys that begin with it", "schema": object{"type": "string"}},
		{"name": "exact", "in": "query", "description": "only the name that equals prefix", "schema": object{"type": "boolean"}},
		{"name": "from", "in": "query", "description": "the first revision wanted; absent: from now on", "schema": object{"type": "integer"}},
		{"name": "pattern", "in": "query", "description": "kind:verb, with * for either; may be repeated", "schema": object{"type": "string"}},
		header("Holdfast-Namespace", "the namespace; default: default"),
		header("Last-Event-ID", "the last id that was told: what follows it is wanted; overrides from"),
	},
	"responses": object{
		"200":     object{"description": "the events", "content": object{"text/event-stream": object{}}},
		"default": failed,
	},
}
