#include "deltawire/version.h"

namespace deltawire {

std::string_view version() noexcept { return DELTAWIRE_VERSION; }

}  // namespace deltawire
