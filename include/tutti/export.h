#pragma once

/// What libtutti shows; all else is hidden.
#define TUTTI_API __attribute__((visibility("default")))
