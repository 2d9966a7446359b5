// The dialects that this build has; registry.cpp lists them.
#pragma once

namespace deltawire {

class Dialect;

}  // namespace deltawire
