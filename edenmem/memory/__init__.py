"""The effects of changes on memory: rules written once, for every store.

Pure functions over the changes of `edenmem.models.changes`. A store loads what `needs` names into
a `State`, once for a batch. `plan` returns what each change does, as an `Effect`; `fold` makes it
visible to the next one; the store writes the effects. A dry run skips the write. `invert` finds the
change that undoes an entry of the log. May import models, errors and text, and nothing else.
"""

from edenmem.memory.inverse import Inverse as Inverse
from edenmem.memory.inverse import Past as Past
from edenmem.memory.inverse import invert as invert
from edenmem.memory.inverse import undo_id as undo_id
from edenmem.memory.planner import fold as fold
from edenmem.memory.planner import plan as plan
from edenmem.memory.planner import plan_all as plan_all
from edenmem.memory.planner import preview as preview
from edenmem.memory.settings import closed_reason as closed_reason
from edenmem.memory.state import VOID as VOID
from edenmem.memory.state import Answer as Answer
from edenmem.memory.state import Disorder as Disorder
from edenmem.memory.state import Effect as Effect
from edenmem.memory.state import Head as Head
from edenmem.memory.state import Model as Model
from edenmem.memory.state import Needs as Needs
from edenmem.memory.state import Origin as Origin
from edenmem.memory.state import State as State
from edenmem.memory.state import Touch as Touch
from edenmem.memory.state import Write as Write
from edenmem.memory.state import needs as needs
from edenmem.memory.state import plain as plain
from edenmem.memory.state import version_id as version_id
