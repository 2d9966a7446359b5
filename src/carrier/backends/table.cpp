#include <map>
#include <mutex>

#include "carrier/backend.h"
#include "carrier/tcp/tcp_backend.h"

namespace deltawire {
namespace {

struct BackendTable {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Backend>, std::less<>> backends;

  BackendTable() {
    std::shared_ptr<Backend> tcp = make_tcp_backend();
    backends[tcp->name()] = std::move(tcp);
  }
};

// Never destroyed: threads that outlive main() may still ask.
BackendTable& backend_table() {
  static auto* const table = new BackendTable;
  return *table;
}

}  // namespace

Result<std::shared_ptr<Backend>> find_backend(std::string_view name) {
  BackendTable& table = backend_table();
  {
    const std::lock_guard lock(table.mutex);
    const auto found = table.backends.find(name);
    if (found != table.backends.end()) return found->second;
  }
  std::string names;
  for (const std::string& one : backend_names()) names += (names.empty() ? "" : ", ") + one;
  return not_found("no carrier \"" + std::string(name) + "\": there are " + names);
}

std::vector<std::string> backend_names() {
  BackendTable& table = backend_table();
  const std::lock_guard lock(table.mutex);
  std::vector<std::string> names;
  for (const auto& [name, backend] : table.backends) names.push_back(name);
  return names;
}

void add_backend(std::shared_ptr<Backend> backend) {
  BackendTable& table = backend_table();
  std::string name = backend->name();
  const std::lock_guard lock(table.mutex);
  table.backends[std::move(name)].swap(backend);
}

}  // namespace deltawire
