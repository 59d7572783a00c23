"""What the package carries beside Python: headers, libraries, tools."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent
PACKAGE = ROOT / "lib" / "cmake" / "devcomm"


def import_tools() -> None:
    """Lets the modules of the simulator's compiler be imported."""
    if str(PACKAGE) not in sys.path:
        sys.path.append(str(PACKAGE))
