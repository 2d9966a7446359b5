#include "ship/remote_store.h"

#include <algorithm>
#include <cstring>

#include "ship/object_service.h"
#include "store/bodies.h"

namespace deltawire {
namespace {

constexpr size_t kInfoFields = 3;

Result<ObjectInfo> parse_info(const nlohmann::json& json) {
  if (!json.is_array() || json.size() != kInfoFields || !json[0].is_string() ||
      !json[1].is_number_unsigned() || !json[2].is_number_integer()) {
    return corruption("an answer that describes no object");
  }
  ObjectInfo info{json[0].get<std::string>(), json[1].get<uint64_t>(), json[2].get<int64_t>()};
  DW_RETURN_IF_ERROR(check_object_name(info.name));
  return info;
}

}  // namespace

Result<Message> RemoteStore::ask(std::string_view op, std::string_view name, nlohmann::json more) {
  nlohmann::json head = {{"op", op}, {"name", name}};
  if (!more.is_null()) head.update(more);
  return receiver_->hub().ask(std::move(head));
}

Result<Capabilities> RemoteStore::capabilities() {
  return unsupported(url() + ": only the publisher writes to its store");
}

Status RemoteStore::put(std::string_view name, const Body& body) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  if (!is_heartbeat_name(name) || body.size() > kMaxPutBytes) {
    return unsupported(url() + "/" + std::string(name) +
                       ": only the publisher writes to its store; replicas put heartbeats alone");
  }
  DW_ASSIGN_OR_RETURN(std::string text, text_of_body(body));
  return receiver_->beat(std::string(name), std::move(text));
}

Status RemoteStore::put_if_absent(std::string_view name, const Body&) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  return unsupported(url() + "/" + std::string(name) + ": only the publisher writes to its store");
}

Result<ObjectInfo> RemoteStore::stat(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  DW_ASSIGN_OR_RETURN(const Message answer, ask("stat", name));
  DW_ASSIGN_OR_RETURN(ObjectInfo info, parse_info(answer.head().value("info", nlohmann::json())));
  if (info.name != name) return corruption(url() + ": answered for another object");
  return info;
}

Result<std::string> RemoteStore::get(std::string_view name, uint64_t max_bytes) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  DW_ASSIGN_OR_RETURN(Message answer, ask("get", name, {{"length", max_bytes}}));
  const uint64_t size = answer.number("size").value_or(UINT64_MAX);
  std::string text = answer.take_body();
  if (size > max_bytes || text.size() > size) {
    return corruption(url() + "/" + std::string(name) + ": " + std::to_string(size) +
                      " bytes is over the limit of " + std::to_string(max_bytes));
  }
  const size_t begun = text.size();
  text.resize(size_t(size));
  DW_RETURN_IF_ERROR(
      read(name, begun, {reinterpret_cast<uint8_t*>(text.data()) + begun, text.size() - begun}));
  return text;
}

Status RemoteStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  while (!out.empty()) {
    const size_t count = size_t(std::min<uint64_t>(out.size(), kAskBytes));
    DW_ASSIGN_OR_RETURN(const Message answer,
                        ask("read", name, {{"offset", offset}, {"length", count}}));
    if (answer.body().size() != count) {
      return corruption(url() + "/" + std::string(name) + ": an answer of another size");
    }
    std::memcpy(out.data(), answer.body().data(), count);
    out = out.subspan(count);
    offset += count;
  }
  return {};
}

Status RemoteStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, stat(name));
  if (info.size_bytes != size_bytes) {
    return corruption(url() + "/" + std::string(name) + ": expected " + std::to_string(size_bytes) +
                      " bytes, got " + std::to_string(info.size_bytes));
  }
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < size_bytes; at += piece.size()) {
    piece.resize(size_t(std::min(kAskBytes, size_bytes - at)));
    DW_RETURN_IF_ERROR(read(name, at, piece));
    DW_RETURN_IF_ERROR(sink->write(at, piece));
  }
  return {};
}

Result<std::vector<ObjectInfo>> RemoteStore::list(std::string_view prefix,
                                                  std::string_view start_after, size_t limit) {
  DW_RETURN_IF_ERROR(check_object_prefix(prefix));
  limit = std::min(limit, kMaxListed);
  DW_ASSIGN_OR_RETURN(const Message answer,
                      ask("list", prefix, {{"after", start_after}, {"limit", limit}}));
  const nlohmann::json infos = answer.head().value("infos", nlohmann::json());
  if (!infos.is_array() || infos.size() > limit) return corruption(url() + ": listed too much");
  std::vector<ObjectInfo> found;
  std::string last(start_after);
  for (const nlohmann::json& json : infos) {
    DW_ASSIGN_OR_RETURN(ObjectInfo info, parse_info(json));
    if (!info.name.starts_with(prefix) || info.name <= last) {
      return corruption(url() + ": listed names in disorder");
    }
    last = info.name;
    found.push_back(std::move(info));
  }
  return found;
}

Status RemoteStore::remove(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  return ask("remove", name).status();
}

}  // namespace deltawire
