#include "ship/object_service.h"

#include <algorithm>

#include "base/guard.h"
#include "chain/names.h"

namespace deltawire {
namespace {

// What an operation has found: fields and bytes of the answer.
struct Found {
  nlohmann::json fields = nlohmann::json::object();
  std::string bytes = {};
};
using Answer = Result<Found>;

nlohmann::json info_json(const ObjectInfo& info) {
  return nlohmann::json::array({info.name, info.size_bytes, info.modified});
}

MutableBytes bytes_of(std::string* text) {
  return {reinterpret_cast<uint8_t*>(text->data()), text->size()};
}

Answer serve_stat(Store& store, const std::string& name, const Message&) {
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, store.stat(name));
  return Found{{{"info", info_json(info)}}};
}

// A small object comes whole; of a larger one the first bytes, and how many there are.
Answer serve_get(Store& store, const std::string& name, const Message& ask) {
  const uint64_t most = ask.number("length").value_or(0);
  Result<std::string> text = store.get(name, std::min(most, kAskBytes));
  if (text.ok()) return Found{{{"size", text->size()}}, std::move(*text)};
  if (text.status().code() != Code::kCorruption || most <= kAskBytes) return text.status();
  // Never held whole here: it may be as large as the model.
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, store.stat(name));
  if (info.size_bytes <= kAskBytes || info.size_bytes > most) return text.status();
  Found found{{{"size", info.size_bytes}}, std::string(size_t(kAskBytes), '\0')};
  DW_RETURN_IF_ERROR(store.read(name, 0, bytes_of(&found.bytes)));
  return found;
}

Answer serve_read(Store& store, const std::string& name, const Message& ask) {
  const uint64_t length = ask.number("length").value_or(0);
  if (length > kAskBytes) return invalid_argument("asked for too many bytes at once");
  Found found;
  found.bytes.resize(size_t(length));
  DW_RETURN_IF_ERROR(store.read(name, ask.number("offset").value_or(0), bytes_of(&found.bytes)));
  return found;
}

Answer serve_list(Store& store, const std::string& prefix, const Message& ask) {
  const size_t limit = size_t(std::min<uint64_t>(ask.number("limit").value_or(0), kMaxListed));
  DW_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> infos,
                      store.list(prefix, ask.text("after").value_or(""), limit));
  Found found;
  found.fields["infos"] = nlohmann::json::array();
  for (const ObjectInfo& info : infos) found.fields["infos"].push_back(info_json(info));
  return found;
}

Status may_write(const std::string& name, uint64_t size) {
  if (is_heartbeat_name(name) && size <= kMaxPutBytes) return {};
  return unsupported(name + ": a replica writes nothing to its publisher's store but heartbeats");
}

Answer serve_put(Store& store, const std::string& name, const Message& ask) {
  DW_RETURN_IF_ERROR(may_write(name, ask.body().size()));
  DW_RETURN_IF_ERROR(store.put(name, MemoryBody(ask.body())));
  return Found{};
}

Answer serve_remove(Store& store, const std::string& name, const Message&) {
  DW_RETURN_IF_ERROR(may_write(name, 0));
  DW_RETURN_IF_ERROR(store.remove(name));
  return Found{};
}

struct Operation {
  std::string_view name;
  Answer (*serve)(Store& store, const std::string& name, const Message& ask);
};
constexpr Operation kOperations[] = {{"stat", serve_stat}, {"get", serve_get},
                                     {"read", serve_read}, {"list", serve_list},
                                     {"put", serve_put},   {"remove", serve_remove}};

Answer serve_ask(Store& store, const Message& ask) {
  const std::optional<std::string> op = ask.text("op"), name = ask.text("name");
  if (!op || !name) return invalid_argument("asked without an operation or a name");
  for (const Operation& operation : kOperations) {
    if (operation.name == *op) return operation.serve(store, *name, ask);
  }
  return unsupported("asked for an unknown operation");
}

}  // namespace

bool is_heartbeat_name(std::string_view name) {
  return name.starts_with(kReplicaPrefix) && check_object_name(name).ok();
}

Message answer_ask(Store& store, const Message& ask) {
  const uint64_t number = ask.number("ask").value_or(0);
  Answer answer = guard_memory("answering", [&] { return serve_ask(store, ask); });
  nlohmann::json json = answer_json(number, answer.status());
  if (!answer.ok()) return Message(std::move(json));
  json.update(answer->fields);
  return Message(std::move(json), std::move(answer->bytes));
}

}  // namespace deltawire
