#include "bridge/export_target.h"

#include "base/guard.h"
#include "base/json.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr uint64_t kMaxMarkerBytes = 4096;

std::string member(const nlohmann::json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string()
             ? json[key].get<std::string>()
             : std::string();
}

}  // namespace

Status check_target(const Chain& chain, const Dialect& dialect, Store& target,
                    const std::vector<uint64_t>& versions) {
  const Result<std::string> text = target.get(kExportMarker, kMaxMarkerBytes);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  if (!text.ok()) {
    if (versions.empty()) return {};
    return conflict(target.url() + ": holds version " + std::to_string(versions.back()) +
                    ", which no export wrote; export to an empty place");
  }
  const nlohmann::json json = parse_json(*text);
  const std::string run = member(json, "run"), name = member(json, "dialect");
  if (run == chain.run() && name == dialect.name()) return {};
  return conflict(target.url() + ": holds an export of run " + run + " as " + name +
                  ", not of run " + chain.run() + " as " + std::string(dialect.name()) +
                  "; export to an empty place");
}

Status mark_target(const Chain& chain, const Dialect& dialect, Store& target) {
  const nlohmann::json json = {{"run", chain.run()}, {"dialect", std::string(dialect.name())}};
  const std::string text = json_text(json) + "\n";
  return target.put(kExportMarker, MemoryBody(text));
}

Status check_exported(const ForeignVersion& version, const Checkpoint& held, const Store& target,
                      ThreadPool* pool) {
  const ForeignInfo& info = version.info();
  return parallel_try("hashing", pool, info.tensors.size(), [&](size_t i, unsigned) -> Status {
    const ForeignTensor& tensor = info.tensors[i];
    if (!tensor.checksum) return {};
    const CheckpointTensor* const own = held.find(tensor.name);
    if (own != nullptr && checksum_of(tensor.checksum->kind, own->view.bytes) == *tensor.checksum) {
      return {};
    }
    return conflict(target.url() + ": version " + std::to_string(info.version) + ", tensor " +
                    quote(tensor.name) + ": is not the chain's; export to an empty place");
  });
}

}  // namespace deltawire
