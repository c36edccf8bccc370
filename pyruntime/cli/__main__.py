from pyruntime.cli import main

raise SystemExit(main())
