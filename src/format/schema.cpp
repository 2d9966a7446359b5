#include "format/schema.h"

#include "format/canonical_json.h"
#include "format/record.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kSchemaFormat = "schema/1";

// [name, dtype, shape]
Result<TensorSpec> read_tensor(CanonicalReader* reader) {
  TensorSpec tensor;
  reader->open_list();
  tensor.name = reader->item().text();
  const std::string_view dtype = reader->item().word();
  tensor.shape.reserve(4);
  for (reader->item().open_list(); reader->next_item();) {
    if (tensor.shape.size() == kMaxRank) return bad_field("tensors", "at most 64 dimensions");
    tensor.shape.push_back(reader->number());
  }
  reader->close_list();
  if (!reader->ok()) return bad_field("tensors", "name, dtype and shape of each");
  const std::optional<DType> known = parse_dtype(dtype);
  if (!known) return unsupported("dtype " + quote(dtype));
  tensor.dtype = *known;
  if (Result<uint64_t> bytes = tensor_size_bytes(tensor.dtype, tensor.shape); !bytes.ok()) {
    return corruption("tensor " + quote(tensor.name) + ": " + bytes.status().message());
  }
  return tensor;
}

Result<std::vector<TensorSpec>> read_tensors(CanonicalReader* reader) {
  std::vector<TensorSpec> tensors;
  for (reader->open_list(); reader->next_item();) {
    DW_ASSIGN_OR_RETURN(TensorSpec tensor, read_tensor(reader));
    if (!tensors.empty() && tensors.back().name >= tensor.name) {
      return bad_field("tensors", "names in ascending order");
    }
    tensors.push_back(std::move(tensor));
  }
  if (!reader->ok()) return bad_field("tensors", "a list");
  return tensors;
}

}  // namespace

std::string serialise_schema(const Schema& schema) {
  std::string tensors;
  for (const TensorSpec& tensor : schema.tensors) {
    tensors.append(tensors.empty() ? "[" : ",[").append(canonical_text(tensor.name));
    tensors.append(",\"").append(dtype_name(tensor.dtype)).append("\",[");
    tensors.append(join_numbers(tensor.shape)).append("]]");
  }
  RecordWriter record(kSchemaFormat);
  record.json("tensors", "[" + tensors + "]");
  return record.plain();
}

// Its name is its digest, so it carries no checksum of its own. Read in one pass: of all records it
// is the largest, with a line per tensor.
Result<Schema> parse_schema(std::string_view text) {
  Schema schema;
  bool has_format = false, has_tensors = false;
  CanonicalReader reader(text);
  std::string key;
  for (reader.open_object(); reader.next_member(&key);) {
    if (key == "format") {
      has_format = true;
      const std::string_view format = reader.word();
      if (reader.ok() && format != kSchemaFormat) {
        return unsupported("format " + quote(format) + "; this build reads " +
                           quote(kSchemaFormat));
      }
    } else if (key == "tensors") {
      has_tensors = true;
      DW_ASSIGN_OR_RETURN(schema.tensors, read_tensors(&reader));
    } else {
      reader.skip();
    }
  }
  reader.finish();
  DW_RETURN_IF_ERROR(reader.status());
  if (!has_format) return bad_field("format", "a text");
  if (!has_tensors) return bad_field("tensors", "a list");
  return schema;
}

}  // namespace deltawire
