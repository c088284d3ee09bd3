// Every frame returns to its sender.
FromPort(inside) -> EtherMirror -> mirrored :: Counter -> ToPort(inside);
