#include <algorithm>

#include "base/file.h"
#include "ship/receiver.h"
#include "ship/receiving_store.h"
#include "ship/ship.h"
#include "store/open_store.h"
#include "store/retrying_store.h"

namespace deltawire {
namespace {

constexpr uint64_t kMaxSecretBytes = 1 << 12;
constexpr std::string_view kShipScheme = "ship://";

}  // namespace

Result<std::string> read_ship_secret(const std::filesystem::path& path) {
  if (path.empty()) return std::string();
  DW_ASSIGN_OR_RETURN(std::string secret, read_text_file(path, kMaxSecretBytes));
  secret.resize(std::min(secret.find('\n'), secret.size()));
  if (secret.ends_with('\r')) secret.pop_back();
  if (secret.empty()) return invalid_argument(path.string() + ": holds no secret");
  return secret;
}

Result<std::shared_ptr<Store>> join_ship(JoinOptions options) {
  if (options.buffer_bytes == 0) return invalid_argument("the buffer must have a size");
  DW_RETURN_IF_ERROR(check_ship_seconds(options.timeout_seconds));
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Receiver> receiver, Receiver::join(options));
  auto store = std::make_shared<ReceivingStore>(std::move(receiver), options.behind);
  return std::shared_ptr<Store>(std::make_shared<RetryingStore>(std::move(store), RetryPolicy()));
}

void register_ship_stores() {
  register_store_scheme(
      std::string(kShipScheme),
      [](const std::string& url, const StoreOptions& options) -> Result<std::shared_ptr<Store>> {
        JoinOptions how;
        how.hub = url.substr(kShipScheme.size());
        DW_ASSIGN_OR_RETURN(how.secret, read_ship_secret(options.secret_file));
        if (!options.behind.empty()) {
          StoreOptions behind = options;
          behind.behind.clear();
          DW_ASSIGN_OR_RETURN(how.behind, open_store(options.behind, behind));
        }
        DW_ASSIGN_OR_RETURN(std::shared_ptr<Receiver> receiver, Receiver::join(how));
        return std::shared_ptr<Store>(
            std::make_shared<ReceivingStore>(std::move(receiver), how.behind));
      });
}

}  // namespace deltawire
