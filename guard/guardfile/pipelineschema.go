package guardfile

import (
	"encoding/json"
	"maps"

	"github.com/holdfast-io/holdfast/pipeline"
)

// PipelineSchema is the JSON Schema of the files that [ParsePipeline] reads, as [Schema] is
// that of guards. ParsePipeline is stricter in what a schema cannot say: which phases are
// named, what stands twice, where a parameter may not stand, and the bounds of a file.
func PipelineSchema() []byte {
	s := strict(object{
		keySchema:      text.schema,
		"pipeline":     describe(text.schema, "The name of the pipeline."),
		keyDescription: describe(text.schema, "What it is for, for people."),
		"params": object{"type": "object", "additionalProperties": ref("param"), "propertyNames": object{"pattern": `^[A-Za-z][A-Za-z0-9_]{0,63}$`},
			"description": "What the file asks for: ${name} in a text stands for its value."},
		"queue":  describe(queueSchema(), "How many runs go on at once, and which is next."),
		"phases": object{"type": "array", "items": ref("phase"), "minItems": 1, "maxItems": pipeline.MaxPhases, "description": "What is done, one after the other."},
	}, "pipeline", "phases")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "A pipeline of Holdfast"
	s["$defs"] = object{"condition": filled(conditionSchema()), "param": paramSchema(), "phase": phaseSchema(), "hold": holdSchema(), "limit": limitSchema()}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // it is ours: texts, numbers, lists and maps
	}
	return append(text, '\n')
}

func paramSchema() object {
	return strict(object{
		"type":         object{"enum": []any{"string", "integer", "boolean"}, "description": "What it is; string if it is left out."},
		keyDescription: describe(text.schema, "What it is for, for people."),
		"default":      object{"anyOf": []any{anyText.schema, integer.schema, boolean.schema}, "description": "Its value if none is given; without one it has to be given."},
	})
}

func queueSchema() object {
	policies := []any{pipeline.FIFO, pipeline.Newest, pipeline.CancelOlder, pipeline.Priority}
	return strict(object{
		"places": object{"type": "integer", "minimum": 0, "maximum": pipeline.MaxWaiting, "description": "How many runs go on at once; 0: all."},
		"policy": object{"enum": policies, "description": "Which run is next; fifo if it is left out."},
	}, "places")
}

func phaseSchema() object {
	s := strict(object{
		"name":       describe(text.schema, "Its name, unlike those of all others."),
		keyWhen:      describe(ref("condition"), "The condition before it."),
		"until":      describe(ref("condition"), "The condition after its command."),
		"wait":       describe(spanSchema(), "How long it may wait for its condition, holds and limits."),
		"within":     describe(spanSchema(), "How long until may take."),
		"pause":      describe(spanSchema(), "How long it rests before it is started again."),
		"retries":    describe(filled(object{"type": "integer", "minimum": 0, "maximum": pipeline.MaxRetries}), "How often it may be started again."),
		"on_failure": describe(text.schema, "The later phase that is next when it has failed."),
		"recovery":   describe(boolean.schema, "It is for failures only."),
		"run":        object{"type": "array", "items": anyText.schema, "minItems": 1, "description": "The program and its arguments; no shell reads them."},
		"wake_on":    object{"type": "array", "items": anyText.schema, "description": "Further events after which its conditions are looked at: kind:name:verb."},
		"holds":      object{"type": "array", "items": ref("hold"), "maxItems": pipeline.MaxHolds, "description": "What it holds while it runs, taken together."},
		"limits":     object{"type": "array", "items": ref("limit"), "maxItems": pipeline.MaxLimits, "description": "What its start takes of limiters."},
	}, "name")
	s["dependentRequired"] = object{"within": []any{"until"}, "pause": []any{"retries"}}
	return s
}

func holdSchema() object {
	s := strict(object{
		"lock": describe(text.schema, "A lock."), "read": describe(text.schema, "The reading side of a lock."), "write": describe(text.schema, "The writing side of a lock."),
		"semaphore": describe(strict(object{
			"name":   describe(text.schema, "The semaphore."),
			"weight": describe(filled(positive.schema), "How much of it; 1 if it is left out."),
			"limit":  describe(filled(positive.schema), "How much there is."),
		}, "name", "limit"), "A share of a semaphore."),
	})
	s["minProperties"], s["maxProperties"] = 1, 1
	return s
}

func limitSchema() object {
	return strict(object{
		"limiter": describe(text.schema, "The limiter, which has to exist."),
		"key":     describe(text.schema, "The key within the limiter."),
		"cost":    describe(filled(positive.schema), "The cost; 1 if it is left out."),
	}, "limiter")
}

// spanSchema is a duration as Go writes it, or one with parameters in it.
func spanSchema() object {
	return filled(object{"type": "string", "pattern": `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`})
}

// filled is a schema in which parameters may stand: a text that is one in place of a whole
// number, and a text that has one in place of a text of a form.
func filled(s object) object {
	out := maps.Clone(s)
	for k, v := range out {
		switch v := v.(type) {
		case object:
			out[k] = filled(v)
		case []any:
			list := make([]any, len(v))
			for i := range v {
				if list[i] = v[i]; k != "enum" {
					list[i] = filled(v[i].(object))
				}
			}
			out[k] = list
		}
	}
	doc := object{}
	form := `\$\{`
	switch {
	case s["type"] == "integer":
		form = `^\$\{[A-Za-z][A-Za-z0-9_]{0,63}\}$`
	case s["pattern"] == nil && s["enum"] == nil:
		return out
	}
	if d, ok := out[keyDescription]; ok {
		doc[keyDescription] = d
		delete(out, keyDescription)
	}
	doc["anyOf"] = []any{out, object{"type": "string", "pattern": form}}
	return doc
}
