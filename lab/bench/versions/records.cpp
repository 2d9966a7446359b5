#include "lab/bench/versions/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "chain/names.h"
#include "cli/context.h"
#include "format/manifest.h"

namespace deltawire::cli {
namespace {

constexpr int kRecordRepeat = 5;
constexpr uint64_t kExperts = 256;

Schema schema_of(uint64_t tensors) {
  static constexpr const char* kParts[] = {"gate_proj", "up_proj", "down_proj"};
  Schema schema;
  for (uint64_t i = 0; i < tensors; ++i) {
    schema.tensors.push_back({fmt::format("model.layers.{}.mlp.experts.{}.{}.weight",
                                          i / 3 / kExperts, i / 3 % kExperts, kParts[i % 3]),
                              DType::kBF16,
                              {2048, 7168}});
  }
  std::sort(schema.tensors.begin(), schema.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return schema;
}

Manifest manifest_of(const Schema& schema, const std::string& schema_text) {
  Manifest m;
  m.run = std::string(32, 'a');
  m.version = 1234;
  m.base = 1233;
  m.parent = record_digest("parent");
  m.created = "2026-11-15T05:36:24Z";
  m.publisher = "bench:1";
  for (uint64_t i = 0; i < 16; ++i) {
    m.parts.push_back({part_folder(m.version, "aa") + fmt::format("part-{:05}.safetensors", i),
                       64 << 20, record_digest("part")});
    m.chain_bytes += m.parts.back().size_bytes;
  }
  const Digest sha256 = record_digest(schema_text);
  m.schema = {schema_name(sha256.hex()), schema_text.size(), sha256};
  for (const Schema::Tensor& tensor : schema.tensors) {
    const Bytes name{reinterpret_cast<const uint8_t*>(tensor.name.data()), tensor.name.size()};
    m.digests.push_back(digest_of(DigestKind::kSum128, name));
  }
  m.state = state_digest(states_of(schema, m).value());  // as many digests as tensors
  m.codec = "auto";
  return m;
}

Result<double> best_of(const std::function<Status()>& work) {
  double best = 1e9;
  for (int i = 0; i < kRecordRepeat; ++i) {
    const double begin = now_seconds();
    DW_RETURN_IF_ERROR(work());
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

}  // namespace

Result<RecordCosts> measure_records(uint64_t tensors) {
  const Schema schema = schema_of(tensors);
  const std::string schema_text = serialise_schema(schema);
  const Manifest manifest = manifest_of(schema, schema_text);
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_manifest(manifest, {}));
  RecordCosts costs{tensors, text.size(), schema_text.size()};
  DW_ASSIGN_OR_RETURN(costs.read_schema,
                      best_of([&] { return parse_schema(schema_text).status(); }));
  DW_ASSIGN_OR_RETURN(costs.write_manifest,
                      best_of([&] { return serialise_manifest(manifest, {}).status(); }));
  DW_ASSIGN_OR_RETURN(costs.read_manifest,
                      best_of([&] { return parse_manifest(text, {}).status(); }));
  return costs;
}

}  // namespace deltawire::cli
